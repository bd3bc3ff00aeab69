"""Convolutions of codes: ConvInteger and QLinearConv."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tenonnx.extend import DType, Op, TensorType, TypeMismatch, Value, op
from tenonnx_quantized.granularity import is_single, scalar
from tenonnx_quantized.pooling import channels_back, channels_first
from tenonnx_quantized.quantize import code_range, encode, encode_array, is_zero, to
from tenonnx_standard.casting import cast
from tenonnx_standard.convolution import conv
from tenonnx_standard.shapes import reshape

Array = np.ndarray[Any, Any]

_EIGHT_BITS = (DType.int8, DType.uint8)

#: Sums up to here are exact in float32, for which runtimes have convolutions; others are made in float64.
_EXACT = 1 << 24


def _by_channel(parameter: Value, rank: int) -> Value:
    """A parameter of the weights: one number, or one for each output channel, along their first axis."""
    return scalar(parameter) if is_single(parameter) else reshape(parameter, [-1] + [1] * (rank - 1))


def _by_channel_array(parameter: Array, rank: int) -> Array:
    return parameter.reshape(()) if parameter.size == 1 else parameter.reshape(-1, *(1,) * (rank - 1))


def _stage(w: Any, dtypes: tuple[DType, DType], shifts: tuple[bool, bool]) -> DType:
    """A float type in which the sums over a kernel of ``w`` are exact."""
    sizes = w.shape[1:]
    if not all(isinstance(s, int) for s in sizes):
        return DType.float64
    reach = [1 << 8 if shifted else max(map(abs, code_range(d))) for d, shifted in zip(dtypes, shifts, strict=True)]
    return DType.float32 if math.prod(sizes) * math.prod(reach) <= _EXACT else DType.float64


def _convolved(x: Value, w: Value, x_zero_point: Value | None, w_zero_point: Value | None, attributes: Any) -> Value:
    """The convolution of codes less their zero points, as exact floats."""
    stage = _stage(w, (x.dtype, w.dtype), (not is_zero(x_zero_point), not is_zero(w_zero_point)))
    image, kernel = to(x, stage), to(w, stage)
    if not is_zero(x_zero_point):
        image = image - to(scalar(x_zero_point), stage)
    if not is_zero(w_zero_point):
        kernel = kernel - to(_by_channel(w_zero_point, w.ndim), stage)
    return conv(image, kernel, **attributes)


def _convolved_array(
    x: Array, w: Array, x_zero_point: Array | None, w_zero_point: Array | None, attributes: Any
) -> Array:
    """``_convolved`` of arrays, as int32."""
    kernel = w.astype(np.float32)
    if w_zero_point is not None and w_zero_point.any():
        kernel -= _by_channel_array(w_zero_point, w.ndim).astype(np.float32)
    least, greatest = code_range(DType.of(x.dtype))
    shift = 0 if x_zero_point is None else int(x_zero_point.reshape(()))
    largest = max(shift - least, greatest - shift) * np.abs(kernel).reshape(len(kernel), -1).sum(1).max(initial=0)
    stage = np.float32 if largest <= _EXACT else np.float64
    image = x.astype(stage)
    if shift:
        image -= stage(shift)
    sums = conv.rules["numpy"](image, kernel.astype(stage, copy=False), **attributes)
    return sums.astype(np.int64).astype(np.int32) if stage is np.float64 else sums.astype(np.int32)


def _check(made: Op, x: Value, w: Value, pairs: Any, channels: Any, attributes: Any) -> TensorType:
    """The type of the convolution, when its inputs hold codes and ``channels``, parameters of the weights, fit them."""
    for codes, zero_point in pairs:
        if codes.dtype not in _EIGHT_BITS:
            raise TypeMismatch(f"{made.title}: the inputs must hold int8 or uint8", given=repr(codes))
        if zero_point is not None and zero_point.dtype is not codes.dtype:
            given = f"{codes!r}, {zero_point!r}"
            raise TypeMismatch(f"{made.title}: a zero point must have the type of its codes", given=given)
    for parameter in channels:
        if parameter is None or parameter.tensor.shape is None or w.rank is None or is_single(parameter):
            continue
        size, count = parameter.shape[0], w.shape[0]
        if parameter.ndim != 1 or (isinstance(size, int) and isinstance(count, int) and size != count):
            given = f"{parameter!r} for {w!r}"
            raise TypeMismatch(f"{made.title}: there must be one parameter for all or each output channel", given=given)
    floats = [Value(v.name, v.tensor.with_dtype(DType.float32)) for v in (x, w)]
    return conv.rules["type"](*floats, **attributes)


@op("ConvInteger", since=10)
def conv_integer(
    x, w, x_zero_point=None, w_zero_point=None, *,
    auto_pad="NOTSET", dilations: list[int] | None = None, group=1, kernel_shape: list[int] | None = None,
    pads: list[int] | None = None, strides: list[int] | None = None,
):  # fmt: skip
    """The convolution of codes less their zero points, in int32; ``w`` may have one for each output channel."""
    attributes = {
        "auto_pad": auto_pad, "dilations": dilations, "group": group,
        "kernel_shape": kernel_shape, "pads": pads, "strides": strides,
    }  # fmt: skip
    return cast(_convolved(x, w, x_zero_point, w_zero_point, attributes), to=DType.int32)


@conv_integer.type
def _(x, w, x_zero_point, w_zero_point, **attributes):
    pairs = ((x, x_zero_point), (w, w_zero_point))
    return _check(conv_integer, x, w, pairs, (w_zero_point,), attributes).with_dtype(DType.int32)


@conv_integer.numpy
def _(x, w, x_zero_point, w_zero_point, **attributes):
    return _convolved_array(x, w, x_zero_point, w_zero_point, attributes)


@op("QLinearConv", since=10)
def qlinear_conv(
    x, x_scale, x_zero_point, w, w_scale, w_zero_point, y_scale, y_zero_point, B=None, *,
    auto_pad="NOTSET", dilations: list[int] | None = None, group=1, kernel_shape: list[int] | None = None,
    pads: list[int] | None = None, strides: list[int] | None = None,
):  # fmt: skip
    """The convolution of the numbers that codes stand for, in codes of the scale and zero point of ``y``.

    The bias is in int32, in units of ``x_scale * w_scale``; ``w`` may have parameters for each output channel.
    """
    attributes = {
        "auto_pad": auto_pad, "dilations": dilations, "group": group,
        "kernel_shape": kernel_shape, "pads": pads, "strides": strides,
    }  # fmt: skip
    sums = cast(_convolved(x, w, x_zero_point, w_zero_point, attributes), to=DType.int32)
    if B is not None:
        sums = sums + reshape(B, [-1] + [1] * (x.ndim - 2))
    scale = scalar(x_scale) * _by_channel(w_scale, w.ndim - 1) / scalar(y_scale)
    return encode(to(sums, DType.float32) * scale, scalar(y_zero_point), y_zero_point.dtype)


@qlinear_conv.type
def _(x, x_scale, x_zero_point, w, w_scale, w_zero_point, y_scale, y_zero_point, B, **attributes):
    for value in (x_scale, w_scale, y_scale):
        if value.dtype is not DType.float32:
            raise TypeMismatch(f"{qlinear_conv.title}: the scales must be float32", given=repr(value), do="cast it")
    if B is not None and B.dtype is not DType.int32:
        raise TypeMismatch(f"{qlinear_conv.title}: B must hold int32", given=repr(B))
    pairs = ((x, x_zero_point), (w, w_zero_point), (y_zero_point, None))
    kind = _check(qlinear_conv, x, w, pairs, (w_zero_point, w_scale, B), attributes)
    return kind.with_dtype(y_zero_point.dtype)


@qlinear_conv.numpy
@np.errstate(all="ignore")
def _(x, x_scale, x_zero_point, w, w_scale, w_zero_point, y_scale, y_zero_point, B, **attributes):
    sums = _convolved_array(x, w, x_zero_point, w_zero_point, attributes)
    if B is not None:
        sums = sums + B.reshape(-1, *(1,) * (x.ndim - 2))
    scale = x_scale.reshape(()) * _by_channel_array(w_scale, w.ndim - 1) / y_scale.reshape(())
    return encode_array(sums.astype(np.float32) * scale, y_zero_point.reshape(()), DType.of(y_zero_point.dtype))


@op("QLinearConv", domain="com.microsoft")
def qlinear_conv_channels_last(
    x, x_scale, x_zero_point, w, w_scale, w_zero_point, y_scale, y_zero_point, B=None, *,
    auto_pad="NOTSET", channels_last=0, dilations: list[int] | None = None, group=1,
    kernel_shape: list[int] | None = None, pads: list[int] | None = None, strides: list[int] | None = None,
):  # fmt: skip
    """QLinearConv, with ``channels_last`` of an image whose channels are the last axis."""
    attributes = {
        "auto_pad": auto_pad, "dilations": dilations, "group": group,
        "kernel_shape": kernel_shape, "pads": pads, "strides": strides,
    }  # fmt: skip
    image = channels_first(x, channels_last)
    y = qlinear_conv(image, x_scale, x_zero_point, w, w_scale, w_zero_point, y_scale, y_zero_point, B, **attributes)
    return channels_back(y, channels_last)
