"""The interface of tf2onnx: ``tf2onnx.convert``, in Python and on the command line."""

from tenonnx_compat.tf2onnx import convert

__all__ = ["convert"]

__version__ = "1.17.0"
