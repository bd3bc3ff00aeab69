"""Conformance cases: a module for each family of ops, with the draws of their inputs and attributes."""
