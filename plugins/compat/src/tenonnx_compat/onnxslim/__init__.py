"""The interface of onnxslim: ``slim`` and the command ``onnxslim``."""

from tenonnx_compat.onnxslim.cli import main, slim
from tenonnx_compat.refusal import refused

__all__ = ["main", "register_fusion_pattern", "slim"]

__version__ = "0.1.98"

register_fusion_pattern = refused(
    "onnxslim.register_fusion_pattern",
    "patterns of onnxslim match its own classes",
    "write a rule for tx.load(rules=...), see docs/reference/rules-and-hooks.md",
)
