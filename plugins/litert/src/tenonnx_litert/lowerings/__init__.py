"""Lowerings of ONNX ops to builtin operators of LiteRT."""

from tenonnx_litert.lowerings import arithmetic, images, matrices, movement, reductions  # noqa: F401 - they register
from tenonnx_litert.lowerings.registry import LOWERINGS, SPATIAL

__all__ = ["LOWERINGS", "SPATIAL"]
