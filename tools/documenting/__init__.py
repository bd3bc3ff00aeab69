"""Generators for the pages of the documentation site."""
