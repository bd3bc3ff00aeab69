"""TensorFlow and Keras: models as graphs (``tx.load``), and rules for custom ops."""

from tenonnx_tensorflow.rules import rule

__all__ = ["rule"]
