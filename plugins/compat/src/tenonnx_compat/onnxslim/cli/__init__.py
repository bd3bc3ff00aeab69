"""``slim`` and the command, in a module with onnxslim's name."""

from tenonnx_compat.onnxslim.cli._main import main, slim

__all__ = ["main", "slim"]
