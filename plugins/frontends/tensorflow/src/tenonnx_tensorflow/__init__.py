"""TensorFlow, Keras and TFLite: their models as graphs (``tx.load``), and rules for ops of others."""

from tenonnx_tensorflow.lite.calls import lite_rule
from tenonnx_tensorflow.rules import rule

__all__ = ["lite_rule", "rule"]
