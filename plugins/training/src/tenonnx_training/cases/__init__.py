"""Conformance cases: every module here declares, per op, how its inputs and attributes are drawn."""
