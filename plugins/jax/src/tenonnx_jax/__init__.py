"""JAX: functions and modules as graphs, graphs as functions (``function``), and rules for primitives of others."""

from tenonnx_jax.functions import Function, function
from tenonnx_jax.rules import composed, of_parts, rule

__all__ = ["Function", "composed", "function", "of_parts", "rule"]
