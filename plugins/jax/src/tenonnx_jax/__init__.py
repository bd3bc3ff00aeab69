"""JAX: functions and modules as graphs, graphs as functions (``function``), and rules for primitives of others."""

from tenonnx_jax.functions import Function, function
from tenonnx_jax.rules import composed, of_parts, rule
from tenonnx_jax.sharding import LayoutPlan, layout_plan

__all__ = ["Function", "LayoutPlan", "composed", "function", "layout_plan", "of_parts", "rule"]
