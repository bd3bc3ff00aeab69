"""Mean and variance along an axis."""

import numpy as np
from hypothesis import strategies as st

import tenonnx_standard as ops
from tenonnx.extend import axis, floats, holds, one_of, op
from tenonnx_testing import axis_of, call, cases, tensors


@op("Moments", domain="com.authored")
def moments(X, *, axis=-1, keepdims=1):
    mean = ops.reduce_mean(X, [axis], keepdims=1)
    apart = X - mean
    variance = ops.reduce_mean(apart * apart, [axis], keepdims=keepdims)
    return (mean if keepdims else ops.squeeze(mean, [axis])), variance


@holds
def not_empty(X, axis):
    return "X is empty along the axis" if X.shape is not None and X.shape[axis] == 0 else None


moments.requires(floats("X"), axis("axis", of="X"), one_of(keepdims=(0, 1)), not_empty)


@moments.numpy
def moments_numpy(X, *, axis, keepdims):
    mean = X.mean(axis, keepdims=True)
    variance = np.square(X - mean).mean(axis, keepdims=bool(keepdims))
    return (mean if keepdims else np.squeeze(mean, axis)), np.asarray(variance)


@moments.type
def moments_type(X, *, axis, keepdims):
    if X.rank is None:
        return X.tensor.with_shape(None), X.tensor.with_shape(None)
    kept = [1 if k == axis % X.rank else d for k, d in enumerate(X.shape)]
    sides = kept if keepdims else [d for k, d in enumerate(X.shape) if k != axis % X.rank]
    return X.tensor.with_shape(tuple(sides)), X.tensor.with_shape(tuple(sides))


@moments.vjp
def moments_vjp(g, y, X, *, axis, keepdims):
    of_mean, of_variance = g
    mean = ops.reduce_mean(X, [axis], keepdims=1)
    count = ops.cast(ops.gather(ops.shape(X), axis), to=X.dtype)
    total = 0.0
    if of_mean is not None:
        total = (of_mean if keepdims else ops.unsqueeze(of_mean, [axis])) / count
    if of_variance is not None:
        wide = of_variance if keepdims else ops.unsqueeze(of_variance, [axis])
        total = wide * (X - mean) * 2.0 / count + total
    return ops.expand(total, ops.shape(X))


def reference(X, *, axis, keepdims):
    wide = X.astype(np.float64)
    found = wide.mean(axis, keepdims=bool(keepdims)), wide.var(axis, keepdims=bool(keepdims))
    return tuple(np.asarray(v).astype(X.dtype) for v in found)


@cases(moments, reference=reference)
def moments_cases(draw):
    x = draw(tensors(["float32", "float64"], min_rank=1))
    return call(x, axis=draw(axis_of(x)), keepdims=draw(st.integers(0, 1)))
