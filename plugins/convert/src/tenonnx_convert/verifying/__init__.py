"""Comparison of graphs, and verification of converted models."""
