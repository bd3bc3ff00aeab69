"""Helpers for models."""
