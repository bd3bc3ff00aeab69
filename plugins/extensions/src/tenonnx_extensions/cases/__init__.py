"""Conformance cases: a module for each family of ops."""
