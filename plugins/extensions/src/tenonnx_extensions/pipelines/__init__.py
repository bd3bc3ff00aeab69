"""Preprocessing graphs: tokenizers and image processors, from the files of their libraries, and decoders of outputs."""
