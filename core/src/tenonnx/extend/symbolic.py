"""Arithmetic on dims: ints, symbols and expressions of symbols, and None where nothing is known."""

from tenonnx.registry.namespace import flat_namespace

__getattr__, __dir__ = flat_namespace(__name__)
