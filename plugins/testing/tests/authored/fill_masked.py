"""Masked fill: replace elements where a mask is true."""

import numpy as np

import tenonnx_standard as ops
from tenonnx.extend import broadcasts_to, dtypes, op, same_dtype, shapes
from tenonnx_testing import call, cases, tensors


@op("FillMasked", domain="com.authored", data_movement=True)
def fill_masked(X, mask, value):
    return ops.where(mask, value, X)


fill_masked.requires(
    dtypes(X="float32 float64 float16 int32", mask="bool"),
    same_dtype("X", "value"),
    shapes(value=""),
    broadcasts_to("X", "mask"),
)


@fill_masked.numpy
def fill_masked_numpy(X, mask, value):
    return np.where(mask, value, X)


@fill_masked.type
def fill_masked_type(X, mask, value):
    return X.tensor


@fill_masked.vjp
def fill_masked_vjp(g, y, X, mask, value):
    zero = ops.cast(0.0, to=g.dtype)
    return ops.where(mask, zero, g), None, ops.reduce_sum(ops.where(mask, g, zero), keepdims=0)


def reference(X, mask, value):
    found = X.copy()
    found[np.broadcast_to(mask, X.shape)] = value
    return found


@cases(fill_masked, reference=reference)
def fill_masked_cases(draw):
    x = draw(tensors(["float32", "float64", "float16", "int32"], min_side=2))
    mask = draw(tensors("bool", shape=x.shape))
    return call(x, mask, draw(tensors(x.dtype, shape=())))
