"""Gaussian error linear units, fused with the addition of a bias."""

from __future__ import annotations

from tenonnx.extend import op
from tenonnx_standard import activation


@op("Gelu", domain="com.microsoft")
def gelu(X):
    """``X`` times the normal distribution function of ``X``."""
    return activation.gelu(X)


@op("BiasGelu", domain="com.microsoft")
def bias_gelu(A, B):
    """Gelu of ``A + B``."""
    return activation.gelu(A + B)


@op("FastGelu", domain="com.microsoft")
def fast_gelu(X, bias=None):
    """Gelu of ``X + bias``, approximated by ``tanh``."""
    return activation.gelu(X if bias is None else X + bias, approximate="tanh")


@op("QuickGelu", domain="com.microsoft")
def quick_gelu(X, *, alpha=1.702):
    """``X`` times the sigmoid of ``alpha * X``."""
    return activation.swish(X, alpha=alpha)
