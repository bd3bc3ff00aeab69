"""LiteRT files as graphs, read without TensorFlow, and rules for operators of others."""

from tenonnx_litert.reading.calls import lite_rule

__all__ = ["lite_rule"]
