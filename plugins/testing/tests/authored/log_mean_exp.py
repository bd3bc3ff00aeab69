"""Logarithm of the mean of exponentials."""

import numpy as np
from hypothesis import strategies as st

import tenonnx_standard as ops
from tenonnx.extend import axis, dtypes, holds, one_of, op
from tenonnx_testing import axis_of, call, cases, tensors


@op("LogMeanExp", domain="com.authored")
def log_mean_exp(X, *, axis=-1, keepdims=1):
    top = ops.reduce_max(X, [axis], keepdims=1)
    mean = ops.reduce_mean(ops.exp(X - top), [axis], keepdims=1)
    whole = ops.log(mean) + top
    return whole if keepdims else ops.squeeze(whole, [axis])


@holds
def not_empty(X, axis):
    return "X is empty along the axis" if X.shape is not None and X.shape[axis] == 0 else None


log_mean_exp.requires(dtypes(X="float32 float64"), axis("axis", of="X"), one_of(keepdims=(0, 1)), not_empty)


@log_mean_exp.numpy
def log_mean_exp_numpy(X, *, axis, keepdims):
    top = X.max(axis, keepdims=True)
    whole = np.log(np.exp(X - top).mean(axis, keepdims=True)) + top
    return whole if keepdims else np.squeeze(whole, axis)


@log_mean_exp.vjp
def log_mean_exp_vjp(g, y, X, *, axis, keepdims):
    wide = g if keepdims else ops.unsqueeze(g, [axis])
    return wide * ops.softmax(X, axis=axis)


def reference(X, *, axis, keepdims):
    whole = np.logaddexp.reduce(X.astype(np.float64), axis, keepdims=bool(keepdims)) - np.log(X.shape[axis])
    return np.asarray(whole).astype(X.dtype)


@cases(log_mean_exp, reference=reference)
def log_mean_exp_cases(draw):
    x = draw(tensors(["float32", "float64"], min_rank=1))
    return call(x, axis=draw(axis_of(x)), keepdims=draw(st.integers(0, 1)))
