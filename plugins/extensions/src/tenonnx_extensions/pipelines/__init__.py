"""Preprocessing graphs: tokenizers, from the files of their libraries."""
