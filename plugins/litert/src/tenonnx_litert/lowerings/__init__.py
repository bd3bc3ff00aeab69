"""Lowerings of ONNX ops to builtin operators of LiteRT."""

from tenonnx_litert.lowerings import (  # noqa: F401 - they register
    arithmetic,
    control,
    detection,
    images,
    matrices,
    movement,
    reductions,
    resizing,
    signal,
    volumes,
)
from tenonnx_litert.lowerings.registry import LOWERINGS, SPATIAL

__all__ = ["LOWERINGS", "SPATIAL"]
