"""QLinearAveragePool, QLinearGlobalAveragePool and QLinearReduceMean."""

from __future__ import annotations

from typing import Any

import tenonnx_standard as ops
from tenonnx.extend import REQUIRED, Value
from tenonnx_quantized.qlinear import qlinear


def channels_first(x: Value, channels_last: int) -> Value:
    """Move the channels of an image from the last axis to axis 1 if ``channels_last``."""
    return ops.transpose(x, perm=[0, x.ndim - 1, *range(1, x.ndim - 1)]) if channels_last else x


def channels_back(y: Value, channels_last: int) -> Value:
    """The inverse of ``channels_first``."""
    return ops.transpose(y, perm=[0, *range(2, y.ndim), 1]) if channels_last else y


@qlinear("QLinearAveragePool", ops.average_pool)
def qlinear_average_pool(
    X,
    x_scale,
    x_zero_point=None,
    y_scale=REQUIRED,
    y_zero_point=None,
    *,
    auto_pad="NOTSET",
    ceil_mode=0,
    channels_last=0,
    count_include_pad=0,
    kernel_shape: list[int],
    pads: list[int] | None = None,
    strides: list[int] | None = None,
):
    """The mean of each window; with ``channels_last`` the channels are the last axis."""
    attributes: dict[str, Any] = {"auto_pad": auto_pad, "ceil_mode": ceil_mode, "count_include_pad": count_include_pad}
    image = channels_first(X, channels_last)
    means = ops.average_pool(image, kernel_shape=kernel_shape, pads=pads, strides=strides, **attributes)
    return channels_back(means, channels_last)


@qlinear("QLinearGlobalAveragePool", ops.global_average_pool)
def qlinear_global_average_pool(X, x_scale, x_zero_point, y_scale, y_zero_point, *, channels_last=0):
    """The mean of each channel of each image; with ``channels_last`` the channels are the last axis."""
    return channels_back(ops.global_average_pool(channels_first(X, channels_last)), channels_last)


@qlinear("QLinearReduceMean", ops.reduce_mean)
def qlinear_reduce_mean(
    data,
    data_scale,
    data_zero_point=None,
    reduced_scale=REQUIRED,
    reduced_zero_point=None,
    *,
    axes: list[int],
    keepdims: int,
):
    """The mean over ``axes``."""
    return ops.reduce_mean(data, axes, keepdims=keepdims)
