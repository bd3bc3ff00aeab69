"""JAX: functions and modules as graphs (``tx.load(function, *examples)``), and rules for primitives of others."""

from tenonnx_jax.rules import composed, of_parts, rule

__all__ = ["composed", "of_parts", "rule"]
