"""RMS normalization along an axis, with a scale."""

import numpy as np

import tenonnx_standard as ops
from tenonnx.extend import axis, floats, holds, op, same_dtype, shapes
from tenonnx_testing import axis_of, call, cases, tensors


@op("RmsNorm", domain="com.authored")
def rms_norm(X, scale, *, axis=-1, epsilon=1e-5):
    square = ops.reduce_mean(X * X, [axis], keepdims=1)
    return X / ops.sqrt(square + epsilon) * scale


@holds
def not_negative(epsilon):
    return None if epsilon >= 0 else "epsilon is negative"


@holds
def not_empty(X, axis):
    return "X is empty along the axis" if X.shape is not None and X.shape[axis] == 0 else None


rms_norm.requires(
    floats("X", "scale"), same_dtype("X", "scale"), shapes(scale=""), axis("axis", of="X"), not_negative, not_empty
)


@rms_norm.numpy
def rms_norm_numpy(X, scale, *, axis, epsilon):
    square = np.mean(X * X, axis, keepdims=True)
    return (X / np.sqrt(square + X.dtype.type(epsilon)) * scale).astype(X.dtype)


@rms_norm.type
def rms_norm_type(X, scale, *, axis, epsilon):
    return X.tensor


@rms_norm.vjp
def rms_norm_vjp(g, y, X, scale, *, axis, epsilon):
    root = ops.sqrt(ops.reduce_mean(X * X, [axis], keepdims=1) + epsilon)
    normal, weighted = X / root, g * scale
    along = ops.reduce_mean(weighted * normal, [axis], keepdims=1)
    return (weighted - normal * along) / root, ops.reduce_sum(g * normal, keepdims=0)


def reference(X, scale, *, axis, epsilon):
    wide = X.astype(np.float64)
    return (wide / np.sqrt((wide**2).mean(axis, keepdims=True) + epsilon) * scale).astype(X.dtype)


@cases(rms_norm, reference=reference)
def rms_norm_cases(draw):
    x = draw(tensors(["float32", "float64"], min_rank=1, exclude_near=(0.0,)))
    return call(x, draw(tensors(x.dtype, shape=())), axis=draw(axis_of(x)), epsilon=0.125)
