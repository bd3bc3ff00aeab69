"""Arithmetic on dims: ints, symbols, expressions of symbols, and None for unknown dims."""

from tenonnx.registry.namespace import flat_namespace

__getattr__, __dir__ = flat_namespace(__name__)
