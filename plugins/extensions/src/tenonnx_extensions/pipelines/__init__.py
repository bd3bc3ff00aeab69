"""Graphs in front of models: tokenizers and image processors, from the files of their libraries."""
