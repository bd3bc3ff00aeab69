"""Activations of one input that let another through."""

from __future__ import annotations

from tenonnx.extend import TypeMismatch, op
from tenonnx_standard.activation import swish


@op("SwiGLU", since=28)
def swiglu(A, B, *, alpha=1.0):
    """``B`` times the Swish of ``A`` (Shazeer 2020, arXiv:2002.05202); both have one shape."""
    if A.rank != B.rank or (A.rank is not None and any(_differ(a, b) for a, b in zip(A.shape, B.shape, strict=True))):
        raise TypeMismatch(f"{swiglu.title}: both inputs must have one shape", given=f"{A!r}, {B!r}")
    return swish(A, alpha=alpha) * B


def _differ(a, b):
    return isinstance(a, int) and isinstance(b, int) and a != b
