"""Correct ops for planting defects."""

from __future__ import annotations

import numpy as np

import tenonnx_standard as ops
from tenonnx.extend import op
from tenonnx_testing import axis_of, broadcastable, call, tensors


def weighted():
    """Return an op for ``X * W + by``, and a function that draws calls."""

    @op("Weighted", domain="com.example")
    def made(X, W, *, by=2.0):
        return X * W + by

    return made, lambda draw: call(*draw(broadcastable(2, ["float32", "float64"])), by=0.5)


def product():
    @op("Product", domain="com.example")
    def made(X, W):
        return X * W

    return made, lambda draw: call(*draw(broadcastable(2, ["int64", "int32", "uint8"])))


def inverse():
    @op("Inverse", domain="com.example")
    def made(X):
        return 1.0 / X

    return made, lambda draw: call(draw(tensors(exclude_near=(0.0,))))


def negated():
    @op("Negated", domain="com.example")
    def made(X):
        return ops.neg(X)

    return made, lambda draw: call(draw(tensors(["float32", "float64"])))


def greatest():
    @op("Greatest", domain="com.example")
    def made(X, W):
        return ops.where(ops.or_(X > W, ops.isnan(X)), X, W)

    def drawn(draw):
        x, w = draw(broadcastable(2, distinct=True))
        return call(x, w + np.float32(10))

    return made, drawn


def summed():
    @op("Summed", domain="com.example")
    def made(X, *, axis=-1):
        return ops.reduce_sum(X, [axis], keepdims=1)

    def drawn(draw):
        x = draw(tensors(min_rank=1))
        return call(x, axis=draw(axis_of(x)))

    return made, drawn


def twice_said():
    @op("TwiceSaid", domain="com.example")
    def made(X):
        return ops.string_concat(X, X)

    return made, lambda draw: call(draw(tensors("string")))


def clipped():
    """Return an op with two optional bounds, which are present in all drawn calls."""

    @op("Bounded", domain="com.example")
    def made(X, low=None, high=None):
        raised = X if low is None else ops.where(low > X, low, X)
        return raised if high is None else ops.where(high < raised, high, raised)

    def drawn(draw):
        low = draw(tensors(shape=(), min_value=-3, max_value=-1))
        return call(draw(tensors()), low, low + np.float32(2))

    return made, drawn


def times(X, W, by):
    return np.asarray(X * W + X.dtype.type(by))


def when(holds):
    """Return a numpy rule that adds 1 to the correct result if a condition on the inputs holds."""
    return lambda X, W, *, by: times(X, W, by) + X.dtype.type(bool(holds(X, W)))
