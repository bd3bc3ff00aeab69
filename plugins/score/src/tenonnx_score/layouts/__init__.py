"""Folders that model servers take: ``tenonnx convert --layout triton`` or ``kserve``."""

from tenonnx_score.layouts.step import layout

__all__ = ["layout"]
