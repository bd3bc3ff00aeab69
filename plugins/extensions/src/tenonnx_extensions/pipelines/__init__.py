"""Pre- and postprocessing graphs: tokenizers and image processors from their files, and decoders of outputs."""
