"""``slim`` and the command, under the names of onnxslim's modules."""

from tenonnx_compat.onnxslim.cli._main import main, slim

__all__ = ["main", "slim"]
