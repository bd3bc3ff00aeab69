"""Ops with rules and cases, for planting mistakes."""
