"""Debugging of models: the smallest that still fails, and copies without names and weights."""
