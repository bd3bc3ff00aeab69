"""Transforms between the forms of a quantized model: QDQ, QOperator, and plain floats."""
