"""Activations of one input that let another through."""

from __future__ import annotations

from tenonnx.extend import op, shapes
from tenonnx_standard.activation import swish


@op("SwiGLU", since=28)
def swiglu(A, B, *, alpha=1.0):
    """``B`` times the Swish of ``A`` (Shazeer 2020, arXiv:2002.05202); both have one shape."""
    return swish(A, alpha=alpha) * B


swiglu.requires(shapes(A="sizes...", B="sizes..."))
