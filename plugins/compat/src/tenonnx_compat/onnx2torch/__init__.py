"""The interface of onnx2torch: ``convert``."""

from tenonnx_compat.onnx2torch.converter import convert

__all__ = ["convert"]

__version__ = "1.5.15"
