"""Convolutions of quantized values: ConvInteger and QLinearConv."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from tenonnx.extend import DType, Op, Operand, TensorType, TypeMismatch, Value, dtypes, limits, op, same_dtype, shapes
from tenonnx_quantized.granularity import is_single, scalar
from tenonnx_quantized.pooling import channels_back, channels_first
from tenonnx_quantized.qlinear import bias_numbers, numbers, requantized
from tenonnx_quantized.quantize import encode, encode_array, is_zero, to
from tenonnx_standard.casting import cast
from tenonnx_standard.convolution import conv
from tenonnx_standard.shapes import reshape
from tenonnx_standard.slicing import gather

Array = np.ndarray[Any, Any]

_EIGHT_BITS = "int8 uint8"

#: Integers up to this magnitude are exact in float32.
_EXACT = 1 << 24


def _by_channel(parameter: Value, rank: int) -> Value:
    """A parameter of the weights, per tensor or per output channel, reshaped to broadcast along their first axis."""
    return scalar(parameter) if is_single(parameter) else reshape(parameter, [-1] + [1] * (rank - 1))


def _by_channel_array(parameter: Array, rank: int) -> Array:
    return parameter.reshape(()) if parameter.size == 1 else parameter.reshape(-1, *(1,) * (rank - 1))


def _exact_ranges(reach: Sequence[float]) -> list[range]:
    """Ranges of channels whose sums are exact in float32; ``reach`` is the maximum contribution of each channel.

    A single channel may exceed the bound; it is then summed in float64.
    """
    starts, total = [0], 0.0
    for channel, size in enumerate(reach):
        if total and total + size > _EXACT:
            starts.append(channel)
            total = 0
        total += size
    return list(itertools.starmap(range, itertools.pairwise([*starts, len(reach)])))


def _of_groups(run: range, depth: int, group: int) -> Array:
    """The channels of an image that correspond to a range of the ``depth`` channels of each group."""
    return np.add.outer(np.arange(group) * depth, run).reshape(-1)


def _exact_convolution(image: Value, kernel: Value, reach: int, attributes: Any) -> Value:
    """A convolution of small integers as int32, exact by a separate convolution for each range of channels.

    ``reach`` is the maximum product. Runtimes support convolutions in float32, but rarely in float64.
    """
    depth, *window = kernel.shape[1:]
    known = all(isinstance(s, int) for s in (depth, *window))
    if known:
        limits.check("entries", depth, "a quantized kernel, with its channels one by one,")
    each = math.prod(window) * reach if known else math.inf
    stage = DType.float32 if each <= _EXACT else DType.float64
    image, kernel = to(image, stage), to(kernel, stage)
    runs = _exact_ranges([each] * depth) if stage is DType.float32 else []
    if len(runs) < 2:
        return cast(conv(image, kernel, **attributes), to=DType.int32)
    total: Any = 0
    for run in runs:
        part = gather(image, _of_groups(run, depth, attributes["group"]), axis=1)
        total = cast(conv(part, kernel[:, run.start : run.stop], **attributes), to=DType.int32) + total
    return total


def _convolved(x: Value, w: Value, x_zero_point: Value | None, w_zero_point: Value | None, attributes: Any) -> Value:
    """The convolution of quantized values minus their zero points, as int32."""
    image, kernel, reach = to(x, DType.float32), to(w, DType.float32), 1
    for quantized, zero_point in ((x, x_zero_point), (w, w_zero_point)):
        reach *= max(map(abs, quantized.dtype.bounds)) if is_zero(zero_point) else 255
    if not is_zero(x_zero_point):
        image = image - to(scalar(x_zero_point), DType.float32)
    if not is_zero(w_zero_point):
        kernel = kernel - to(_by_channel(w_zero_point, w.ndim), DType.float32)
    return _exact_convolution(image, kernel, reach, attributes)


def _convolved_array(
    x: Array, w: Array, x_zero_point: Array | None, w_zero_point: Array | None, attributes: Any
) -> tuple[Array, float]:
    """``_convolved`` for arrays, and a bound of its magnitude: float32 up to ``_EXACT``, int32 beyond."""
    kernel = _kernel_array(w, w_zero_point)
    shift = 0 if x_zero_point is None else int(x_zero_point.reshape(()))
    image = x.astype(np.float32)
    if shift:
        image -= np.float32(shift)
    depth, group = w.shape[1], attributes["group"]
    sums = _magnitudes(kernel, DType.of(x.dtype), shift)
    largest = sums.sum(1, dtype=np.float64).max(initial=0)
    convolve = conv.rules["numpy"]
    if largest <= _EXACT:
        return convolve(image, kernel, **attributes), largest
    total: Any = 0
    for run in _exact_ranges(sums.max(0).tolist()):
        chosen = slice(run.start, run.stop)
        stage = np.float32 if sums[:, chosen].sum(1).max() <= _EXACT else np.float64
        part = image.take(_of_groups(run, depth, group), 1).astype(stage, copy=False)
        found = convolve(part, kernel[:, chosen].astype(stage, copy=False), **attributes)
        total = total + found.astype(np.int64).astype(np.int32)
    return total, largest


def _magnitudes(kernel: Array, quantized: DType, shift: int) -> Array:
    """Bounds of the sums of each kernel channel, ``[results, channels]``, over values minus a zero point."""
    least, greatest = quantized.bounds
    taps = math.prod(kernel.shape[2:])
    return np.abs(kernel).reshape(*kernel.shape[:2], taps).sum(2) * max(shift - least, greatest - shift)  # type: ignore[no-any-return]


def _kernel_array(w: Array, w_zero_point: Array | None) -> Array:
    kernel = w.astype(np.float32)
    if w_zero_point is not None and w_zero_point.any():
        kernel -= _by_channel_array(w_zero_point, w.ndim).astype(np.float32)
    return kernel


def _check(op: Op, x: Value, w: Value, channels: Any, attributes: Any) -> TensorType:
    """The type of the convolution. Raises if ``channels``, the parameters of the weights, do not fit."""
    for parameter in channels:
        if parameter is None or parameter.tensor.shape is None or w.rank is None or is_single(parameter):
            continue
        size, count = parameter.shape[0], w.shape[0]
        if parameter.ndim != 1 or (isinstance(size, int) and isinstance(count, int) and size != count):
            given = f"{parameter!r} for {w!r}"
            raise TypeMismatch(
                f"{op.title}: a scale or zero point has neither one element nor one for each output channel",
                given=given,
            )
    floats = [Value(v.name, v.tensor.with_dtype(DType.float32)) for v in (x, w)]
    return conv.rules["type"](*floats, **attributes)


def _attributes(*given: Any) -> dict[str, Any]:
    """The attributes of a convolution by name, from values in the alphabetical order of its op's attributes."""
    return dict(zip(("auto_pad", "dilations", "group", "kernel_shape", "pads", "strides"), given, strict=True))


@op("ConvInteger", since=10)
def conv_integer(
    x,
    w,
    x_zero_point=None,
    w_zero_point=None,
    *,
    auto_pad="NOTSET",
    dilations: list[int] | None = None,
    group=1,
    kernel_shape: list[int] | None = None,
    pads: list[int] | None = None,
    strides: list[int] | None = None,
):
    """The int32 convolution of values minus zero points; ``w`` may have one per output channel."""
    attributes = _attributes(auto_pad, dilations, group, kernel_shape, pads, strides)
    return _convolved(x, w, x_zero_point, w_zero_point, attributes)


@conv_integer.type
def conv_integer_type(x, w, x_zero_point, w_zero_point, **attributes):
    return _check(conv_integer, x, w, (w_zero_point,), attributes).with_dtype(DType.int32)


@conv_integer.numpy
def conv_integer_numpy(x, w, x_zero_point, w_zero_point, **attributes):
    sums, _ = _convolved_array(x, w, x_zero_point, w_zero_point, attributes)
    return sums.astype(np.int32, copy=False)


@conv_integer.vjp
def conv_integer_vjp(g, y, x, w, x_zero_point, w_zero_point, **attributes):
    """The gradient of the convolution of dequantized values, passed to the quantized values unchanged."""
    image, kernel = to(x, g.dtype), to(w, g.dtype)
    if x_zero_point is not None:
        image = image - to(scalar(x_zero_point), g.dtype)
    if w_zero_point is not None:
        kernel = kernel - to(_by_channel(w_zero_point, w.ndim), g.dtype)
    to_image, to_kernel, _ = conv.rules["vjp"](g, y, image, kernel, None, **attributes)
    return to_image, to_kernel, None, None


conv_integer.traits(integer_sums=True)


@op("QLinearConv", since=10)
def qlinear_conv(
    x,
    x_scale,
    x_zero_point,
    w,
    w_scale,
    w_zero_point,
    y_scale,
    y_zero_point,
    B=None,
    *,
    auto_pad="NOTSET",
    dilations: list[int] | None = None,
    group=1,
    kernel_shape: list[int] | None = None,
    pads: list[int] | None = None,
    strides: list[int] | None = None,
):
    """The convolution of dequantized values, quantized by ``y_scale`` and ``y_zero_point``.

    The bias is int32 in units of ``x_scale * w_scale``; ``w`` may have parameters per output channel.
    """
    attributes = _attributes(auto_pad, dilations, group, kernel_shape, pads, strides)
    sums = _convolved(x, w, x_zero_point, w_zero_point, attributes)
    if B is not None:
        sums = sums + reshape(B, [-1] + [1] * (x.ndim - 2))
    scale = scalar(x_scale) * _by_channel(w_scale, w.ndim - 1) / scalar(y_scale)
    return encode(to(sums, DType.float32) * scale, scalar(y_zero_point), y_zero_point.dtype)


@qlinear_conv.type
def qlinear_conv_type(x, x_scale, x_zero_point, w, w_scale, w_zero_point, y_scale, y_zero_point, B, **attributes):
    return _check(qlinear_conv, x, w, (w_zero_point, w_scale, B), attributes).with_dtype(y_zero_point.dtype)


@qlinear_conv.vjp(surrogate=True)
def qlinear_conv_vjp(x, x_scale, x_zero_point, w, w_scale, w_zero_point, y_scale, y_zero_point, B, **attributes):
    image, weights = numbers(x, x_scale, x_zero_point, 1), numbers(w, w_scale, w_zero_point, 0)
    if image is None or weights is None:
        return None
    y = conv(image, weights, bias_numbers(B, x_scale, w_scale), **attributes)
    return requantized(y, y_scale, y_zero_point, x)


@qlinear_conv.numpy
@np.errstate(all="ignore")
def qlinear_conv_numpy(x, x_scale, x_zero_point, w, w_scale, w_zero_point, y_scale, y_zero_point, B, **attributes):
    sums, largest = _convolved_array(x, w, x_zero_point, w_zero_point, attributes)
    if B is not None:
        bias = B.reshape(-1, *(1,) * (x.ndim - 2))
        if largest + np.abs(bias.astype(np.int64)).max(initial=0) > _EXACT:
            sums = sums.astype(np.int32, copy=False)
        sums += bias.astype(sums.dtype)
    scale = x_scale.reshape(()) * _by_channel_array(w_scale, w.ndim - 1) / y_scale.reshape(())
    units = sums.astype(np.float32, copy=False)
    units *= scale
    return encode_array(units, y_zero_point.reshape(()), DType.of(y_zero_point.dtype))


@qlinear_conv.specialize
@np.errstate(all="ignore")
def qlinear_conv_specialize(x, x_scale, x_zero_point, w, w_scale, w_zero_point, y_scale, y_zero_point, B, **attributes):
    """Prepare the weights as floats if all parameters are constant and float32 represents all sums."""
    given = (x_scale, x_zero_point, w, w_scale, w_zero_point, y_scale, y_zero_point, *(() if B is None else (B,)))
    if any(v.contents is None for v in given):
        return None
    kernel, shift = _kernel_array(w.contents, w_zero_point.contents), int(x_zero_point.contents.reshape(()))
    bias = 0 if B is None else B.contents.astype(np.float32).reshape(-1, *(1,) * (x.ndim - 2))
    largest = _magnitudes(kernel, DType.of(x.dtype), shift).sum(1, dtype=np.float64).max(initial=0)
    if largest + np.abs(bias).max(initial=0) > _EXACT:
        return None
    image = Operand(x.shape, np.dtype(np.float32))
    convolve = conv.rules["specialize"](image, Operand(w.shape, image.dtype), None, **attributes)
    by = x_scale.contents.reshape(()) * _by_channel_array(w_scale.contents, w.ndim - 1)
    scale, zero_point = by / y_scale.contents.reshape(()), y_zero_point.contents.reshape(())
    dtype = DType.of(zero_point.dtype)

    def convolve_integers(x, *_):
        wide = x.astype(np.float32)
        if shift:
            wide -= np.float32(shift)
        sums = convolve(wide, kernel)
        if B is not None:
            sums += bias
        sums *= scale
        return encode_array(sums, zero_point, dtype)

    return convolve_integers


@op("QLinearConv", domain="com.microsoft")
def qlinear_conv_channels_last(
    x,
    x_scale,
    x_zero_point,
    w,
    w_scale,
    w_zero_point,
    y_scale,
    y_zero_point,
    B=None,
    *,
    auto_pad="NOTSET",
    channels_last=0,
    dilations: list[int] | None = None,
    group=1,
    kernel_shape: list[int] | None = None,
    pads: list[int] | None = None,
    strides: list[int] | None = None,
):
    """QLinearConv; with ``channels_last`` the channels of the image are the last axis."""
    attributes = _attributes(auto_pad, dilations, group, kernel_shape, pads, strides)
    image = channels_first(x, channels_last)
    y = qlinear_conv(image, x_scale, x_zero_point, w, w_scale, w_zero_point, y_scale, y_zero_point, B, **attributes)
    return channels_back(y, channels_last)


qlinear_conv.traits(scales="x_scale w_scale y_scale")

for _op in (conv_integer, qlinear_conv, qlinear_conv_channels_last):
    _op.requires(
        shapes(w="_ _ ..."),
        dtypes(x=_EIGHT_BITS, w=_EIGHT_BITS),
        same_dtype("x", "x_zero_point"),
        same_dtype("w", "w_zero_point"),
    )
for _op in (qlinear_conv, qlinear_conv_channels_last):
    _op.requires(shapes(x_scale="|1", y_scale="|1", y_zero_point="|1"))
    _op.requires(dtypes(x_scale="float32", w_scale="float32", y_scale="float32", y_zero_point=_EIGHT_BITS, B="int32"))
