"""Requantization of accumulators, with a factor per channel and one zero point."""

import numpy as np

import tenonnx_standard as ops
from tenonnx.extend import DType, dtypes, op, shapes
from tenonnx_testing import call, cases, tensors

RANGE = {DType.int8: (-128, 127), DType.uint8: (0, 255)}


@op("Requantize", domain="com.authored")
def requantize(Y, factor, zero_point):
    low, high = RANGE[zero_point.dtype]
    wide = ops.cast(Y, to=DType.float64) * ops.cast(factor, to=DType.float64)
    shifted = ops.round_(wide) + ops.cast(zero_point, to=DType.float64)
    return ops.cast(ops.clip(shifted, float(low), float(high)), to=zero_point.dtype)


requantize.requires(
    dtypes(Y="int32", factor="float32", zero_point="int8 uint8"),
    shapes(Y="rows channels", factor="channels", zero_point=""),
)


@requantize.numpy
def requantize_numpy(Y, factor, zero_point):
    low, high = RANGE[DType.of(zero_point.dtype)]
    shifted = np.rint(Y.astype(np.float64) * factor.astype(np.float64)) + zero_point.astype(np.float64)
    return np.clip(shifted, low, high).astype(zero_point.dtype)


@requantize.type
def requantize_type(Y, factor, zero_point):
    return Y.tensor.with_dtype(zero_point.dtype)


def reference(Y, factor, zero_point):
    limits = np.iinfo(zero_point.dtype)
    found = [[round(int(y) * float(f)) + int(zero_point) for y, f in zip(row, factor, strict=True)] for row in Y]
    return np.clip(np.asarray(found, np.int64).reshape(Y.shape), limits.min, limits.max).astype(zero_point.dtype)


@cases(requantize, gradient=False, reference=reference)
def requantize_cases(draw):
    y = draw(tensors("int32", min_rank=2, max_rank=2, min_value=-2000, max_value=2000))
    factor = draw(tensors(shape=y.shape[1:], min_value=0.01, max_value=0.25))
    return call(y, factor, draw(tensors(["int8", "uint8"], shape=(), min_value=0, max_value=60)))
