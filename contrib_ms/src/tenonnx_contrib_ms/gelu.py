"""Gaussian error linear units, fused with the addition of a bias."""

from __future__ import annotations

import tenonnx_standard as ops
from tenonnx.extend import floats, op, same_dtype, shapes


@op("Gelu", domain="com.microsoft")
def gelu(X):
    """``X`` times the cumulative normal distribution of ``X``."""
    return ops.gelu(X)


@op("BiasGelu", domain="com.microsoft")
def bias_gelu(A, B):
    """Gelu of ``A + B``."""
    return ops.gelu(A + B)


@op("FastGelu", domain="com.microsoft")
def fast_gelu(X, bias=None):
    """Gelu of ``X + bias``, approximated by ``tanh``."""
    return ops.gelu(X if bias is None else X + bias, approximate="tanh")


@op("QuickGelu", domain="com.microsoft")
def quick_gelu(X, *, alpha=1.702):
    """``X`` times the sigmoid of ``alpha * X``."""
    return ops.swish(X, alpha=alpha)


@op("BiasSplitGelu", domain="com.microsoft")
def bias_split_gelu(X, bias):
    """The first half of ``X + bias`` along the last axis, times the Gelu of the second."""
    left, right = ops.split(X + bias, axis=-1, num_outputs=2)
    return left * ops.gelu(right)


bias_split_gelu.traits(on_request=True)


_BIASED = "... hidden"
bias_gelu.requires(shapes(A=_BIASED, B="hidden"), floats("A", "B"), same_dtype("A", "B"))
bias_split_gelu.requires(shapes(X=_BIASED, bias="hidden"), floats("X", "bias"), same_dtype("X", "bias"))
fast_gelu.requires(shapes(X=f"{_BIASED}|", bias="hidden"), floats("X", "bias"), same_dtype("X", "bias"))
