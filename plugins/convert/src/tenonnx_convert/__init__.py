"""Conversion of a source to a verified file."""
