"""Optimization of graphs: fusion, simplification, half precision, and costs."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tenonnx_optimize.cost_model import costs
    from tenonnx_optimize.fusion import fuse
    from tenonnx_optimize.half_budget import lower_within
    from tenonnx_optimize.layouts import channels_first
    from tenonnx_optimize.precision import lower_precision
    from tenonnx_optimize.simplification import simplify

__all__ = ["channels_first", "costs", "fuse", "lower_precision", "lower_within", "simplify"]

_MODULES = {
    "channels_first": "layouts",
    "costs": "cost_model",
    "fuse": "fusion",
    "lower_precision": "precision",
    "lower_within": "half_budget",
    "simplify": "simplification",
}


def __getattr__(name: str) -> Any:
    """Import a function lazily, so that conversion steps can declare their options without it."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
