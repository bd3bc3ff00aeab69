"""Conversion from a source to a verified file."""
