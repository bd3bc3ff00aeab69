"""Huber loss: quadratic near 0 and linear beyond ``delta``, with broadcasting."""

import numpy as np
from hypothesis import strategies as st

import tenonnx_standard as ops
from tenonnx.extend import floats, holds, op, same_dtype
from tenonnx_testing import broadcastable, call, cases


@op("Huber", domain="com.authored", broadcasts=True, elementwise=True)
def huber(X, target, *, delta=1.0):
    apart = X - target
    far = ops.absolute(apart)
    return ops.where(far > delta, (far - delta / 2) * delta, apart * apart / 2.0)


@holds
def positive(delta):
    return None if delta > 0 else "delta is not positive"


huber.requires(floats("X", "target"), same_dtype("X", "target"), positive)


@huber.numpy
def huber_numpy(X, target, *, delta):
    apart, half = X - target, X.dtype.type(delta / 2)
    far = abs(apart)
    return np.where(far > X.dtype.type(delta), (far - half) * X.dtype.type(delta), apart * apart / 2).astype(X.dtype)


@huber.type
def huber_type(X, target, *, delta):
    return ops.sub.rules["type"](X, target)


@huber.vjp
def huber_vjp(g, y, X, target, *, delta):
    apart = X - target
    slope = g * ops.where(ops.absolute(apart) > delta, ops.sign(apart) * delta, apart)
    return slope, ops.neg(slope)


def reference(X, target, *, delta):
    far = np.abs(X.astype(np.float64) - target)
    return np.where(far > delta, delta * (far - delta / 2), far**2 / 2).astype(X.dtype)


@cases(huber, reference=reference)
def huber_cases(draw):
    x, target = draw(broadcastable(2, ["float32", "float64"]))
    return call(x, target, delta=draw(st.sampled_from([0.5, 1.0, 3.0])))
