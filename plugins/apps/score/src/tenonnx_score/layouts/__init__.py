"""Folders that model servers take: ``tenonnx convert --layout triton`` or ``kserve``."""

from tenonnx_score.layouts.step import Layout

__all__ = ["Layout"]
