"""The first half of an axis, gated by the second."""

import numpy as np
from hypothesis import strategies as st

import tenonnx_standard as ops
from tenonnx.extend import axis, floats, holds, one_of, op
from tenonnx_testing import axis_of, call, cases, tensors


@op("Glu", domain="com.authored")
def glu(X, *, axis=-1, gate="sigmoid"):
    value, control = ops.split(X, axis=axis, num_outputs=2)
    return value * (ops.sigmoid(control) if gate == "sigmoid" else ops.relu(control))


@holds
def even(X, axis):
    size = X.shape[axis] if X.shape is not None else None
    return "X has an odd size along the axis" if isinstance(size, int) and (size % 2 or not size) else None


glu.requires(floats("X"), axis("axis", of="X"), one_of(gate=("sigmoid", "relu")), even)


@glu.numpy
def glu_numpy(X, *, axis, gate):
    value, control = np.split(X, 2, axis)
    if gate == "relu":
        return value * np.maximum(control, X.dtype.type(0))
    small = np.exp(-np.abs(control))
    return value * np.where(control < 0, small, X.dtype.type(1)) / (1 + small)


@glu.type
def glu_type(X, *, axis, gate):
    if X.shape is None:
        return X.tensor
    sides = list(X.shape)
    sides[axis] = None if sides[axis] is None else sides[axis] // 2
    return X.tensor.with_shape(tuple(sides))


@glu.vjp
def glu_vjp(g, y, X, *, axis, gate):
    value, control = ops.split(X, axis=axis, num_outputs=2)
    if gate == "relu":
        return ops.concat(g * ops.relu(control), ops.where(control > 0.0, g * value, 0.0), axis=axis)
    share = ops.sigmoid(control)
    return ops.concat(g * share, g * value * share * (1.0 - share), axis=axis)


def reference(X, *, axis, gate):
    wide = np.moveaxis(X.astype(np.float64), axis, 0)
    half = len(wide) // 2
    with np.errstate(over="ignore"):
        control = np.maximum(wide[half:], 0) if gate == "relu" else 1 / (1 + np.exp(-wide[half:]))
    return np.moveaxis(wide[:half] * control, 0, axis).astype(X.dtype)


@cases(glu, reference=reference)
def glu_cases(draw):
    half = draw(tensors(["float32", "float64"], min_rank=1, exclude_near=(0.0,)))
    axis = draw(axis_of(half))
    other = draw(tensors(half.dtype, shape=half.shape, exclude_near=(0.0,)))
    return call(np.concatenate([half, other], axis), axis=axis, gate=draw(st.sampled_from(["sigmoid", "relu"])))
