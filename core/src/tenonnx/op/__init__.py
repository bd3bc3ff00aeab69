"""Layer 1: the operator protocol, tracing, evaluation and type inference."""

from tenonnx.op.dispatch import apply

__all__ = ["apply"]
