"""Modes of quantization."""

#: The modes; the first one, which needs no data, is the default.
MODES = ("dynamic", "static", "weights")
