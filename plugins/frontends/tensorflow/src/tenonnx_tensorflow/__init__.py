"""TensorFlow and Keras: their models as graphs (``tx.load``), and rules for ops of others."""

from tenonnx_tensorflow.rules import rule

__all__ = ["rule"]
