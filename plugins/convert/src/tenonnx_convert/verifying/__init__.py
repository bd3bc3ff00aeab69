"""Comparison of graphs, and verification of a converted model."""
