"""Convolutions, matrix products and Softmax fused with the ops before or after them."""

from __future__ import annotations

import tenonnx_standard as ops
from tenonnx.extend import op
from tenonnx_contrib_ms.activations import listed, named


@op("FusedConv", domain="com.microsoft")
def fused_conv(
    X,
    W,
    B=None,
    Z=None,
    *,
    activation: str | None = None,
    activation_params: list[float] | None = None,
    auto_pad="NOTSET",
    dilations: list[int] | None = None,
    group=1,
    kernel_shape: list[int] | None = None,
    pads: list[int] | None = None,
    strides: list[int] | None = None,
):
    """Conv plus ``Z``, then an activation."""
    y = ops.conv(
        X,
        W,
        B,
        auto_pad=auto_pad,
        dilations=dilations,
        group=group,
        kernel_shape=kernel_shape,
        pads=pads,
        strides=strides,
    )
    return listed(fused_conv, y if Z is None else y + Z, activation, activation_params)


@op("FusedGemm", domain="com.microsoft")
def fused_gemm(
    A,
    B,
    C=None,
    *,
    activation: str | None = None,
    activation_alpha: float | None = None,
    activation_beta: float | None = None,
    activation_gamma: float | None = None,
    alpha=1.0,
    beta=1.0,
    transA=0,
    transB=0,
):
    """Gemm, then an activation."""
    y = ops.gemm(A, B, C, alpha=alpha, beta=beta, transA=transA, transB=transB)
    parameters = {"alpha": activation_alpha, "beta": activation_beta, "gamma": activation_gamma}
    return named(fused_gemm, y, activation, **parameters)


@op("BiasSoftmax", domain="com.microsoft")
def bias_softmax(data, bias, *, axis=1, is_inner_broadcast: int):
    """Softmax of ``data + bias`` over all axes from ``axis`` on.

    ``bias`` broadcasts by its axes of length 1, so that ``is_inner_broadcast``, which describes them, has no effect.
    """
    return ops.softmax_2d(data + bias, axis=axis)


bias_softmax.traits(on_request=True)


@op("BiasAdd", domain="com.microsoft")
def bias_add(X, bias, skip):
    """``X + bias + skip``."""
    return X + bias + skip


bias_add.traits(on_request=True)
