"""Errors of a conversion."""

from tenonnx import NotRepresentable


class MissingConverter(NotRepresentable, RuntimeError):
    """An estimator or one of its settings cannot be converted to ONNX."""


class MissingShapeCalculator(MissingConverter):
    """As ``MissingConverter``; skl2onnx raises this error for types without a shape calculator."""
