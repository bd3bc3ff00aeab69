"""QuantizeLinear, DequantizeLinear and DynamicQuantizeLinear."""

from __future__ import annotations

from typing import Any

import numpy as np

from tenonnx.extend import (
    DType,
    Op,
    TensorType,
    TypeMismatch,
    Value,
    constant,
    dims,
    dtypes,
    floats,
    op,
    same_dtype,
    shapes,
    static,
)
from tenonnx_quantized.granularity import (
    check_granularity,
    collected,
    is_single,
    scalar,
    spread,
    spread_array,
    whole_blocks,
)
from tenonnx_standard import scalars
from tenonnx_standard.casting import cast
from tenonnx_standard.logic import and_, greater_or_equal, less_or_equal, where
from tenonnx_standard.math import clip, maximum, minimum, round_
from tenonnx_standard.reduction import reduce_max, reduce_min
from tenonnx_standard.shapes import expand, reshape, shape, unsqueeze

Array = np.ndarray[Any, Any]


# ----- quantized values -----------------------------------------------------------------------------------------------


def to(x: Value, dtype: DType) -> Value:
    return x if x.dtype is dtype else cast(x, to=dtype)


def wide(dtype: DType) -> DType:
    """The dtype for lossless computation: float64 for float64, else float32."""
    return DType.float64 if dtype is DType.float64 else DType.float32


def encode(x: Value, zero_point: Value | None, dtype: DType, saturate: int = 1) -> Value:
    """Quantize numbers in units of the scale: round half to even, shift and saturate."""
    if not dtype.is_integer:
        x = x if is_zero(zero_point) else x + to(zero_point, x.dtype)
        return cast(x, to=dtype, saturate=saturate)
    x = to(round_(x), wide(x.dtype))
    least, greatest = dtype.bounds
    x = x if is_zero(zero_point) else x + to(zero_point, x.dtype)
    return cast(clip(x, float(least), float(greatest)), to=dtype)


def encode_array(x: Array, zero_point: Array | None, dtype: DType, saturate: int = 1) -> Array:
    """``encode`` for an array, which it overwrites."""
    if not dtype.is_integer:
        x = x if zero_point is None else x + zero_point.astype(x.dtype)
        return cast.rules["numpy"](x, to=dtype, saturate=saturate)
    np.rint(x, out=x)
    if x.dtype != np.float64:
        x = x.astype(np.float32, copy=False)
    if zero_point is not None and zero_point.any():
        x += zero_point.astype(x.dtype)
    low, high = (scalars.scalar(end, x.dtype) for end in dtype.bounds)
    np.clip(x, low, high, out=x)
    if np.isnan(np.minimum.reduce(x, axis=None, initial=high)):
        np.fmax(x, low, out=x)  # NaN becomes the lowest value, as in onnxruntime
    return x.astype(dtype.numpy)


def is_zero(zero_point: Value | None) -> bool:
    """Whether a zero point is absent, or surely zero everywhere."""
    contents = static(zero_point)
    return zero_point is None or (contents is not None and not np.any(contents.astype(np.float32)))


# ----- QuantizeLinear -------------------------------------------------------------------------------------------------


def _code(op: Op, zero_point: Value | None, output_dtype: int) -> DType:
    """The type of the quantized values: that of the zero point, else ``output_dtype``, else uint8."""
    wanted = _dtype(op, "output_dtype", output_dtype) if output_dtype else None
    if zero_point is None:
        return wanted or DType.uint8
    if wanted not in (None, zero_point.dtype):
        raise TypeMismatch(
            f"{op.title}: output_dtype differs from the type of the zero point", given=f"{wanted} and {zero_point!r}"
        )
    return zero_point.dtype


def _dtype(op: Op, name: str, number: int) -> DType:
    try:
        return DType(number)
    except ValueError as error:
        raise TypeMismatch(f"{op.title}: {name} is not the number of an element type", given=f"{number}") from error


def _stage(op: Op, x: DType, scale: DType, precision: int) -> DType:
    """The dtype of the division: ``precision``, else that of the scale, if it can be computed in."""
    if precision:
        scale = _dtype(op, "precision", precision)
    if scale.is_float and scale.bits > 8:
        return scale
    return x if x.is_float else DType.float32


@op("QuantizeLinear", since=10)
def quantize_linear(x, y_scale, y_zero_point=None, *, axis=1, block_size=0, output_dtype=0, precision=0, saturate=1):
    """``x / y_scale``, rounded half to even, plus the zero point, saturated.

    The result has the type of the zero point; without one, ``output_dtype``, by default uint8. Scales are per tensor,
    per position of ``axis``, or per block of ``block_size`` positions. The division is done in ``precision``, by
    default the type of the scale. The gradient treats rounding as the identity.
    """
    dtype = _code(quantize_linear, y_zero_point, output_dtype)
    stage = _stage(quantize_linear, x.dtype, y_scale.dtype, precision)
    scale = spread(quantize_linear, to(y_scale, stage), x, axis, block_size)
    zero_point = None if is_zero(y_zero_point) else spread(quantize_linear, y_zero_point, x, axis, block_size)
    return encode(to(x, stage) / scale, zero_point, dtype, saturate)


@quantize_linear.type
def quantize_linear_type(x, y_scale, y_zero_point, *, axis, block_size, output_dtype, precision, saturate):
    title = quantize_linear.title
    dtype = _code(quantize_linear, y_zero_point, output_dtype)
    if not x.dtype.is_float and x.dtype is not DType.int32:
        raise TypeMismatch(f"{title}: x holds neither floats nor int32", given=repr(x), do="cast it")
    if not y_scale.dtype.is_float and y_scale.dtype is not DType.int32:
        raise TypeMismatch(f"{title}: scale holds no floats", given=repr(y_scale), do="cast it")
    _stage(quantize_linear, x.dtype, y_scale.dtype, precision)
    check_granularity(quantize_linear, x, y_scale, y_zero_point, axis, block_size)
    return TensorType(dtype, x.tensor.shape)


@quantize_linear.numpy
@np.errstate(all="ignore")
def quantize_linear_numpy(x, y_scale, y_zero_point, *, axis, block_size, output_dtype, precision, saturate):
    dtype = DType(output_dtype or DType.uint8) if y_zero_point is None else DType.of(y_zero_point.dtype)
    stage = _stage(quantize_linear, DType.of(x.dtype), DType.of(y_scale.dtype), precision).numpy
    scale = spread_array(y_scale.astype(stage, copy=False), x, axis, block_size)
    zero_point = None if y_zero_point is None else spread_array(y_zero_point, x, axis, block_size)
    return encode_array(np.asarray(x.astype(stage, copy=False) / scale), zero_point, dtype, saturate)


@quantize_linear.vjp
def quantize_linear_vjp(g, y, x, y_scale, y_zero_point, *, axis, block_size, output_dtype, precision, saturate):
    """Pass the gradient straight through the rounding, with zero where the quantized value is saturated.

    ``g`` is a cotangent of quantized values in units of the scale, as DequantizeLinear returns it.
    """
    scale = spread(quantize_linear, to(y_scale, g.dtype), x, axis, block_size)
    units = to(x, g.dtype) / scale
    if y.dtype.is_integer:
        least, greatest = y.dtype.bounds
        shifted = round_(units)
        if y_zero_point is not None:
            shifted = shifted + to(spread(quantize_linear, y_zero_point, x, axis, block_size), g.dtype)
        inside = and_(greater_or_equal(shifted, float(least)), less_or_equal(shifted, float(greatest)))
        g = where(inside, g, 0.0)
    to_units = g / scale
    to_scale = None
    if y_scale.dtype.is_float and y_scale.dtype.bits > 8:
        to_scale = to(collected(-(to_units * units), y_scale, x, axis, block_size), y_scale.dtype)
    return to(to_units, x.dtype) if x.dtype.is_float else None, to_scale, None


# ----- older versions -------------------------------------------------------------------------------------------------


@quantize_linear.until(23)
def quantize_linear_in_one_type(x, y_scale, y_zero_point=None, *, axis=1, block_size=0, output_dtype=0, saturate=1):
    """QuantizeLinear with a scale of the dtype of ``x``."""
    return quantize_linear(
        x, y_scale, y_zero_point, axis=axis, block_size=block_size, output_dtype=output_dtype, saturate=saturate
    )


quantize_linear_in_one_type.until(21, lacks=["block_size", "output_dtype"])


quantize_linear_in_one_type.requires(same_dtype("x", "y_scale"))


@quantize_linear.lower(to=quantize_linear_in_one_type)
def quantize_linear_to_quantize_linear_in_one_type(
    x, y_scale, y_zero_point, *, axis, block_size, output_dtype, precision, saturate
):
    stage = _stage(quantize_linear, x.dtype, y_scale.dtype, precision)
    return quantize_linear_in_one_type(
        to(x, stage),
        to(y_scale, stage),
        y_zero_point,
        axis=axis,
        block_size=block_size,
        output_dtype=output_dtype,
        saturate=saturate,
    )


@quantize_linear_in_one_type.until(19)
def quantize_linear_by_float(x, y_scale, y_zero_point=None, *, axis=1):
    """QuantizeLinear to eight bits with float32 scales, one in total or one per position of ``axis``."""
    return quantize_linear(x, y_scale, y_zero_point, axis=axis)


@quantize_linear_in_one_type.lower()
def quantize_linear_in_one_type_lowering(x, y_scale, y_zero_point, *, axis, block_size, output_dtype, saturate):
    """Select the type of the quantized values by a zero point instead of an attribute."""
    if not output_dtype or y_zero_point is not None:
        return None
    return quantize_linear_in_one_type(
        x, y_scale, _no_shift(y_scale, DType(output_dtype)), axis=axis, block_size=block_size, saturate=saturate
    )


@quantize_linear_in_one_type.lower(to=quantize_linear_by_float)
def quantize_linear_in_one_type_to_quantize_linear_by_float(
    x, y_scale, y_zero_point, *, axis, block_size, output_dtype, saturate
):
    if block_size or y_scale.dtype is not DType.float32 or y_scale.rank is None:
        return None
    if output_dtype and y_zero_point is None:
        y_zero_point = _no_shift(y_scale, DType(output_dtype))
    return quantize_linear_by_float(x, y_scale, y_zero_point, axis=axis)


def _no_shift(scale: Value, dtype: DType) -> Value:
    zero = constant(np.zeros(()), dtype)
    return zero if scale.rank == 0 else expand(zero, shape(scale))


@quantize_linear_by_float.until(13)
def quantize_linear_by_number(x, y_scale, y_zero_point=None):
    """QuantizeLinear with a single float32 scale."""
    return quantize_linear_by_float(x, scalar(y_scale), None if y_zero_point is None else scalar(y_zero_point))


quantize_linear_by_number.requires(shapes(y_scale="|1", y_zero_point="|1"))


@quantize_linear_by_float.lower(to=quantize_linear_by_number)
def quantize_linear_by_float_to_quantize_linear_by_number(x, y_scale, y_zero_point, *, axis):
    if not is_single(y_scale):
        return None
    return quantize_linear_by_number(x, scalar(y_scale), None if y_zero_point is None else scalar(y_zero_point))


# ----- DequantizeLinear -----------------------------------------------------------------------------------------------


@op("DequantizeLinear", since=10)
def dequantize_linear(x, x_scale, x_zero_point=None, *, axis=1, block_size=0, output_dtype=0):
    """``(x - x_zero_point) * x_scale``, in ``output_dtype`` or the type of the scale.

    Scales are per tensor, per position of ``axis``, or per block of ``block_size`` positions.
    """
    dtype = DType(output_dtype or x_scale.dtype)
    stage = wide(dtype)
    blocks = whole_blocks(x_scale, x, axis, block_size)

    def quantized(dtype):
        return to(x, dtype) if blocks is None else reshape(to(x, dtype), blocks)

    def along(parameter):
        if blocks is None:
            return spread(dequantize_linear, parameter, x, axis, block_size)
        return unsqueeze(parameter, [axis % x.ndim + 1])

    if is_zero(x_zero_point):
        units = quantized(stage)
    else:
        exact = DType.int32 if x.dtype is DType.int32 else stage
        units = to(quantized(exact) - along(to(x_zero_point, exact)), stage)
    y = to(units * along(to(x_scale, stage)), dtype)
    return y if blocks is None else reshape(y, dims(x))


dequantize_linear.until(23, lacks=["output_dtype"])
dequantize_linear.until(21, lacks=["block_size"])


@dequantize_linear.type
def dequantize_linear_type(x, x_scale, x_zero_point, *, axis, block_size, output_dtype):
    title = dequantize_linear.title
    dtype = _dtype(dequantize_linear, "output_dtype", output_dtype) if output_dtype else x_scale.dtype
    if not dtype.is_float or dtype.bits <= 8:
        raise TypeMismatch(
            f"{title}: output_dtype, or else the scale, is not a float type of 16 bits or more",
            given=f"output_dtype={output_dtype}, scale {x_scale!r}",
        )
    if x_zero_point is not None and x_zero_point.dtype is not x.dtype:
        raise TypeMismatch(f"{title}: types of x and its zero point differ", given=f"{x!r}, {x_zero_point!r}")
    check_granularity(dequantize_linear, x, x_scale, x_zero_point, axis, block_size)
    return TensorType(dtype, x.tensor.shape)


@dequantize_linear.numpy
@np.errstate(all="ignore")
def dequantize_linear_numpy(x, x_scale, x_zero_point, *, axis, block_size, output_dtype):
    dtype = DType(output_dtype) if output_dtype else DType.of(x_scale.dtype)
    stage = wide(dtype).numpy
    units = x
    if x_zero_point is not None and x_zero_point.astype(stage).any():
        exact = np.dtype(np.int32) if x.dtype == np.int32 else stage
        units = x.astype(exact) - spread_array(x_zero_point.astype(exact), x, axis, block_size)
    units = np.asarray(units).astype(stage)
    units *= spread_array(x_scale.astype(stage), x, axis, block_size)
    return units.astype(dtype.numpy, copy=False)


@dequantize_linear.vjp
def dequantize_linear_vjp(g, y, x, x_scale, x_zero_point, *, axis, block_size, output_dtype):
    """Quantized values receive the cotangent of the dequantized values in units of the scale: see QuantizeLinear."""
    to_x = g * spread(dequantize_linear, to(x_scale, g.dtype), x, axis, block_size)
    if x_scale.dtype.bits <= 8:
        return to_x, None, None
    stage = wide(g.dtype)  # sums in float16 overflow
    units = to(x, stage)
    if x_zero_point is not None:
        units = units - spread(dequantize_linear, to(x_zero_point, stage), x, axis, block_size)
    return to_x, to(collected(to(g, stage) * units, x_scale, x, axis, block_size), x_scale.dtype), None


@dequantize_linear.lower()
def dequantize_linear_lowering(x, x_scale, x_zero_point, *, axis, block_size, output_dtype):
    """Select the output type by the type of the scale and a Cast instead of an attribute."""
    if not output_dtype:
        return None
    stage = wide(DType(output_dtype))
    y = dequantize_linear(x, to(x_scale, stage), x_zero_point, axis=axis, block_size=block_size)
    return to(y, DType(output_dtype))


@dequantize_linear.until(13)
def dequantize_linear_by_number(x, x_scale, x_zero_point=None):
    """DequantizeLinear with a single float32 scale."""
    return dequantize_linear(x, scalar(x_scale), None if x_zero_point is None else scalar(x_zero_point))


dequantize_linear_by_number.requires(shapes(x_scale="|1", x_zero_point="|1"))


@dequantize_linear.lower(to=dequantize_linear_by_number)
def dequantize_linear_to_dequantize_linear_by_number(x, x_scale, x_zero_point, *, axis, block_size, output_dtype):
    if output_dtype or not is_single(x_scale):
        return None
    return dequantize_linear_by_number(x, scalar(x_scale), None if x_zero_point is None else scalar(x_zero_point))


# ----- DynamicQuantizeLinear ------------------------------------------------------------------------------------------


@op("DynamicQuantizeLinear", since=11)
def dynamic_quantize_linear(x):
    """Quantize ``x`` to uint8, with a scale and zero point that cover its range, including 0.

    If ``x`` is all zero, the scale is 1, as in onnxruntime; the specification's formula divides by 0.
    """
    low, high = minimum(reduce_min(x, keepdims=0), 0), maximum(reduce_max(x, keepdims=0), 0)
    spread_out = high - low
    scale = where(spread_out > 0, spread_out / 255.0, 1.0)
    zero_point = cast(round_(clip(-low / scale, 0.0, 255.0)), to=DType.uint8)
    return quantize_linear(x, scale, zero_point), scale, zero_point


dynamic_quantize_linear.requires(floats("x"))


@dynamic_quantize_linear.numpy
@np.errstate(all="ignore")
def dynamic_quantize_linear_numpy(x):
    low, high = np.minimum.reduce(x, axis=None, initial=0), np.maximum.reduce(x, axis=None, initial=0)
    width = high - low
    scale = np.asarray(width / x.dtype.type(255) if width > 0 else 1, x.dtype)
    zero_point = np.asarray(min(np.rint(-low / scale), x.dtype.type(255)), np.uint8)
    return encode_array(np.asarray(x / scale), zero_point, DType.uint8), scale, zero_point


for _op, _scale in ((quantize_linear, "y_scale"), (dequantize_linear, "x_scale")):
    _op.traits(any_version=True)
    for _meaning in _op.meanings:
        _meaning.traits(scales=_scale)
for _meaning in dequantize_linear.meanings:
    _meaning.traits(unpacks=True)

_EIGHT_BITS = "int8 uint8"
_QUANTIZED_FLOATS = "float8e4m3fn float8e4m3fnuz float8e5m2 float8e5m2fnuz float4e2m1"
_QUANTIZED = f"{_EIGHT_BITS} int16 uint16 int4 uint4 int2 uint2 {_QUANTIZED_FLOATS}"

for _meaning in quantize_linear.meanings:
    _meaning.requires(dtypes(y_zero_point=_QUANTIZED if _meaning.since >= 19 else _EIGHT_BITS))
for _meaning in dequantize_linear.meanings:
    _meaning.requires(dtypes(x=f"integer {_QUANTIZED_FLOATS}"))
