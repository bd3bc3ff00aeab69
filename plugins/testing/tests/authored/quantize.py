"""Quantized values of ``X``: divided by a scale, rounded to even, shifted, saturated."""

import numpy as np

import tenonnx_standard as ops
from tenonnx.extend import DType, dtypes, op, shapes
from tenonnx_testing import call, cases, tensors

RANGE = {DType.int8: (-128, 127), DType.uint8: (0, 255)}


@op("Quantize", domain="com.authored")
def quantize(X, scale, zero_point):
    low, high = RANGE[zero_point.dtype]
    shifted = ops.round_(X / scale) + ops.cast(zero_point, to=DType.float32)
    return ops.cast(ops.clip(shifted, float(low), float(high)), to=zero_point.dtype)


quantize.requires(dtypes(X="float32", scale="float32", zero_point="int8 uint8"), shapes(scale="", zero_point=""))


@quantize.numpy
def quantize_numpy(X, scale, zero_point):
    low, high = RANGE[DType.of(zero_point.dtype)]
    shifted = np.rint(X / scale) + zero_point.astype(np.float32)
    return np.clip(shifted, low, high).astype(zero_point.dtype)


@quantize.type
def quantize_type(X, scale, zero_point):
    return X.tensor.with_dtype(zero_point.dtype)


def reference(X, scale, zero_point):
    limits = np.iinfo(zero_point.dtype)
    return np.clip(np.round(X / scale) + np.float32(zero_point), limits.min, limits.max).astype(zero_point.dtype)


@cases(quantize, gradient=False, reference=reference)
def quantize_cases(draw):
    zero_point = draw(tensors(["int8", "uint8"], shape=(), min_value=0, max_value=100))
    return call(draw(tensors()), draw(tensors(shape=(), min_value=0.05, max_value=0.5)), zero_point)
