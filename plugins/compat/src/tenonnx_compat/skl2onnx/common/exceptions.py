"""Errors of a conversion."""

from tenonnx import NotRepresentable


class MissingConverter(NotRepresentable, RuntimeError):
    """An estimator, or a setting of one, has no form in ONNX."""


class MissingShapeCalculator(MissingConverter):
    """The same, by the other name under which skl2onnx raises it."""
