"""Channels-last layouts."""

from __future__ import annotations

import tenonnx_standard as ops
from tenonnx.extend import Value, op
from tenonnx_contrib_ms.activations import listed


def channels_first(x: Value) -> Value:
    """Move the last axis of ``x`` to the second place."""
    return ops.transpose(x, perm=[0, x.ndim - 1, *range(1, x.ndim - 1)])


def channels_last_again(x: Value) -> Value:
    """Move the second axis of ``x`` to the last place."""
    return ops.transpose(x, perm=[0, *range(2, x.ndim), 1])


@op("NhwcConv", domain="com.microsoft")
def nhwc_conv(
    X,
    W,
    B=None,
    *,
    auto_pad="NOTSET",
    dilations: list[int] | None = None,
    group=1,
    kernel_shape: list[int] | None = None,
    pads: list[int] | None = None,
    strides: list[int] | None = None,
):
    """Conv with channels last, also in ``W``.

    onnxruntime's optimizer and kernel use this layout of ``W``, although the documentation says that of Conv.
    """
    y = ops.conv(
        channels_first(X),
        channels_first(W),
        B,
        auto_pad=auto_pad,
        dilations=dilations,
        group=group,
        kernel_shape=kernel_shape,
        pads=pads,
        strides=strides,
    )
    return channels_last_again(y)


nhwc_conv.traits(on_request=True)


@op("NhwcFusedConv", domain="com.microsoft")
def nhwc_fused_conv(
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
    """Conv plus ``Z``, then an activation, with channels last except in ``W``."""
    y = ops.conv(
        channels_first(X),
        W,
        B,
        auto_pad=auto_pad,
        dilations=dilations,
        group=group,
        kernel_shape=kernel_shape,
        pads=pads,
        strides=strides,
    )
    y = channels_last_again(y)
    return listed(nhwc_fused_conv, y if Z is None else y + Z, activation, activation_params)


nhwc_fused_conv.traits(on_request=True)


@op("NhwcMaxPool", domain="com.microsoft")
def nhwc_max_pool(
    x,
    *,
    auto_pad="NOTSET",
    ceil_mode=0,
    dilations: list[int] | None = None,
    kernel_shape: list[int],
    pads: list[int] | None = None,
    strides: list[int] | None = None,
):
    """MaxPool with channels last."""
    y = ops.max_pool(
        channels_first(x),
        auto_pad=auto_pad,
        ceil_mode=ceil_mode,
        dilations=dilations,
        kernel_shape=kernel_shape,
        pads=pads,
        strides=strides,
        _outputs=1,
    )
    return channels_last_again(y)
