"""Cases of QuantizeLinear, DequantizeLinear and DynamicQuantizeLinear."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from tenonnx.extend import DType
from tenonnx_quantized.quantize import (
    dequantize_linear,
    dequantize_linear_by_number,
    dynamic_quantize_linear,
    quantize_linear,
    quantize_linear_by_float,
    quantize_linear_by_number,
    quantize_linear_in_one_type,
)
from tenonnx_testing import Gap, call, cases, tensors

EIGHT_BITS = ["uint8", "int8"]
INTEGERS = [*EIGHT_BITS, "uint16", "int16", "uint4", "int4", "uint2", "int2"]
FLOATS = ["float8e4m3fn", "float8e4m3fnuz", "float8e5m2", "float8e5m2fnuz", "float4e2m1"]


def seven_bits(values):
    """Halve values of int8: without VNNI, onnxruntime sums two of their products with uint8 in 16 bits."""
    return values // 2 if values.dtype == np.int8 else values


def parameters(draw, shape, granularity, scales, quantized):
    """Draw a scale, and a zero point or None, with their axis and block size."""
    axis, block = 1, 0
    sides = draw(st.sampled_from([(), (1,)]))
    if granularity != "tensor" and len(shape):
        axis = draw(st.integers(-len(shape), len(shape) - 1)) if granularity != "axis 1" else 1
        if granularity == "block" and len(shape) > 1:
            block = draw(st.integers(1, shape[axis] + 1))
            sides = tuple(-(-d // block) if k == axis % len(shape) else d for k, d in enumerate(shape))
        else:
            sides = (shape[axis],)
    scale = draw(tensors(scales, shape=sides, min_value=0.2, max_value=2))
    dtype = DType[quantized]
    zero_point = None
    if draw(st.booleans()):
        reach = 3 if dtype.is_integer else 0
        zero_point = draw(tensors(quantized, shape=sides, min_value=-reach, max_value=reach))
    return scale, zero_point, axis, block


def quantized_of(draw, zero_point, quantized):
    """Draw the attribute for the type of the quantized values, which is required without a zero point."""
    if zero_point is None and quantized != "uint8":
        return int(DType[quantized])
    return draw(st.sampled_from([0, int(DType[quantized])]))


GRANULARITIES = st.sampled_from(["tensor", "axis", "block"])


QUANTIZED_NAN = Gap(
    "special values", "the body casts NaN, and the rule returns the lowest quantized value, as onnxruntime does"
)


def _divides_zero_by_zero(drawn):
    x, scale = drawn.inputs[:2]
    return not np.all(x) and not np.all(scale)


ZERO_BY_ZERO = Gap("bad input", QUANTIZED_NAN.reason, when=_divides_zero_by_zero)


@cases(quantize_linear, gradient=False, gaps=[QUANTIZED_NAN, ZERO_BY_ZERO])
def quantize_linear_cases(draw):
    quantized = draw(st.sampled_from(INTEGERS + FLOATS))
    x = draw(tensors(["float32", "int32"], min_value=-20, max_value=20))
    scale, zero_point, axis, block = parameters(draw, x.shape, draw(GRANULARITIES), "float32", quantized)
    output_dtype = quantized_of(draw, zero_point, quantized)
    precision = draw(st.sampled_from([0, int(DType.float32)]))
    saturate = draw(st.integers(0, 1))
    return call(
        x,
        scale,
        zero_point,
        axis=axis,
        block_size=block,
        output_dtype=output_dtype,
        precision=precision,
        saturate=saturate,
    )


@cases(quantize_linear, gradient=False, steps=1, gaps=[QUANTIZED_NAN, ZERO_BY_ZERO])
def quantize_linear_cases_2(draw):
    """Divisions in 16-bit floats; other implementations divide in float32."""
    quantized = draw(st.sampled_from(EIGHT_BITS + FLOATS))
    dtype, scales = (
        draw(st.sampled_from(["float16", "bfloat16"])),
        draw(st.sampled_from(["float16", "bfloat16", "float32"])),
    )
    x = draw(tensors(dtype, min_value=-20, max_value=20))
    scale, zero_point, axis, block = parameters(draw, x.shape, draw(GRANULARITIES), scales, quantized)
    return call(
        x, scale, zero_point, axis=axis, block_size=block, output_dtype=quantized_of(draw, zero_point, quantized)
    )


@cases(quantize_linear, gradient=False, gaps=[ZERO_BY_ZERO])
def quantize_linear_cases_3(draw):
    """Scales that are powers of two."""
    x = draw(tensors(["float32"], min_value=-20, max_value=20))
    scale, _, axis, block = parameters(draw, x.shape, draw(GRANULARITIES), "float8e8m0", "float8e4m3fn")
    return call(x, scale, axis=axis, block_size=block, output_dtype=int(DType.float8e4m3fn))


@cases(quantize_linear_in_one_type, gradient=False)
def quantize_linear_in_one_type_cases(draw):
    quantized = draw(st.sampled_from(["uint8", "int8", "uint16", "int16", "uint4", "int4", *FLOATS[:4]]))
    x = draw(tensors("float32", min_value=-20, max_value=20))
    scale, zero_point, axis, block = parameters(draw, x.shape, draw(GRANULARITIES), "float32", quantized)
    output_dtype = quantized_of(draw, zero_point, quantized)
    return call(
        x, scale, zero_point, axis=axis, block_size=block, output_dtype=output_dtype, saturate=draw(st.integers(0, 1))
    )


@cases(quantize_linear_by_float, gradient=False)
def quantize_linear_by_float_cases(draw):
    quantized = draw(st.sampled_from(EIGHT_BITS))
    x = draw(tensors(["float32", "int32"], min_value=-20, max_value=20))
    scale, zero_point, axis, _ = parameters(
        draw, x.shape, draw(st.sampled_from(["tensor", "axis"])), "float32", quantized
    )
    return call(x, scale, zero_point, axis=axis)


@cases(quantize_linear_by_number, gradient=False)
def quantize_linear_by_number_cases(draw):
    quantized = draw(st.sampled_from(EIGHT_BITS))
    x = draw(tensors(["float32", "int32"], min_value=-20, max_value=20))
    scale, zero_point, _, _ = parameters(draw, x.shape, "tensor", "float32", quantized)
    return call(x, scale, zero_point)


@cases(dequantize_linear, gradient=["x_scale"])
def dequantize_linear_cases(draw):
    quantized = draw(st.sampled_from([*INTEGERS, *FLOATS, "int32"]))
    x = draw(tensors(quantized, min_value=-200, max_value=200))
    scales = ["float32", "float16", "bfloat16"]
    scale, zero_point, axis, block = parameters(draw, x.shape, draw(GRANULARITIES), scales, quantized)
    if quantized == "int32":
        zero_point = None
    output_dtype = draw(st.sampled_from([0, int(DType.float32), int(DType.float16)]))
    return call(x, scale, zero_point, axis=axis, block_size=block, output_dtype=output_dtype)


@cases(dequantize_linear, gradient=False)
def dequantize_linear_cases_2(draw):
    """Scales that are powers of two."""
    quantized = draw(st.sampled_from(["int8", "float8e4m3fn", "float4e2m1"]))
    x = draw(tensors(quantized, min_value=-6, max_value=6))
    scale, _, axis, block = parameters(draw, x.shape, draw(GRANULARITIES), "float8e8m0", quantized)
    return call(
        x, scale, axis=axis, block_size=block, output_dtype=int(draw(st.sampled_from([DType.float32, DType.bfloat16])))
    )


@cases(dequantize_linear_by_number, gradient=["x_scale"])
def dequantize_linear_by_number_cases(draw):
    quantized = draw(st.sampled_from([*EIGHT_BITS, "int32"]))
    x = draw(tensors(quantized, min_value=-200, max_value=200))
    scale, zero_point, _, _ = parameters(draw, x.shape, "tensor", "float32", quantized)
    return call(x, scale, None if quantized == "int32" else zero_point)


@cases(dynamic_quantize_linear, gradient=False)
def dynamic_quantize_linear_cases(draw):
    low, high = draw(st.sampled_from([(-4, 4), (1, 5), (-5, -1), (-0.01, 100)]))
    x = draw(tensors("float32", min_value=low, max_value=high))
    return call(x)
