"""Conformance cases: strategies for inputs and attributes, one module per family of ops."""
