"""Dequantization of integers by scale and zero point."""

import numpy as np
from hypothesis import strategies as st

import tenonnx_standard as ops
from tenonnx.extend import DType, dtypes, op, same_dtype, shapes
from tenonnx_testing import call, cases, tensors


@op("Dequantize", domain="com.authored")
def dequantize(Q, scale, zero_point=None):
    wide = ops.cast(Q, to=DType.int32)
    apart = wide if zero_point is None else wide - ops.cast(zero_point, to=DType.int32)
    return ops.cast(apart, to=scale.dtype) * scale


dequantize.requires(
    dtypes(Q="int8 uint8 int16", scale="float32 float64"),
    same_dtype("Q", "zero_point"),
    shapes(scale="", zero_point=""),
)


@dequantize.numpy
def dequantize_numpy(Q, scale, zero_point):
    apart = Q.astype(np.int32) - (0 if zero_point is None else zero_point.astype(np.int32))
    return apart.astype(scale.dtype) * scale


@dequantize.type
def dequantize_type(Q, scale, zero_point):
    return Q.tensor.with_dtype(scale.dtype)


@dequantize.vjp
def dequantize_vjp(g, y, Q, scale, zero_point):
    return None, ops.reduce_sum(g * dequantize(Q, ops.cast(1.0, to=scale.dtype), zero_point), keepdims=0), None


def reference(Q, scale, zero_point):
    return ((Q.astype(np.float64) - (0 if zero_point is None else float(zero_point))) * scale).astype(scale.dtype)


@cases(dequantize, reference=reference)
def dequantize_cases(draw):
    q = draw(tensors(["int8", "uint8", "int16"], min_value=-128, max_value=255))
    zero_point = draw(st.sampled_from([None, draw(tensors(q.dtype, shape=(), min_value=-9, max_value=9))]))
    return call(q, draw(tensors(shape=(), min_value=0.05, max_value=0.5)), zero_point)
