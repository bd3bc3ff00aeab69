"""Reader of LiteRT files, without TensorFlow, and the decorator for rules of further operators."""

from tenonnx_litert.reading.calls import lite_rule

__all__ = ["lite_rule"]
