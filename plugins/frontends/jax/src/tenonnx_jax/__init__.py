"""JAX: functions and modules as graphs, graphs as functions (``function``), and rules for custom primitives."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tenonnx_jax.functions import Function, function
    from tenonnx_jax.layout_plans import LayoutPlan, layout_plan
    from tenonnx_jax.rules import composed, of_parts, rule

__all__ = ["Function", "LayoutPlan", "composed", "function", "layout_plan", "of_parts", "rule"]

_PLACES = {
    "Function": "functions",
    "LayoutPlan": "layout_plans",
    "composed": "rules",
    "function": "functions",
    "layout_plan": "layout_plans",
    "of_parts": "rules",
    "rule": "rules",
}


def __getattr__(name: str) -> Any:
    """Import public names on first use: JAX takes long to import, and backends are inspected before that."""
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_PLACES[name]}"), name)
