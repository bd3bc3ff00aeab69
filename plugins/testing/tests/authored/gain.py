"""``X * by + bias``; below version 3, ``by`` was an exponent of two, and there was no bias."""

import numpy as np
from hypothesis import strategies as st

import tenonnx_standard as ops
from tenonnx.extend import floats, one_of, op
from tenonnx_testing import call, cases, tensors


@op("Gain", domain="com.authored", since=1)
def gain(X, *, by=2.0, bias=0.0, mode="linear"):
    scaled = X * by + bias
    return scaled if mode == "linear" else ops.relu(scaled)


gain.requires(floats("X"), one_of(mode=("linear", "relu")))


@gain.until(3)
def gain_by_power(X, *, by=1.0):
    return X * 2.0**by


@gain.lower(to=gain_by_power)
def gain_to_power(X, *, by, bias, mode):
    return gain_by_power(X, by=float(np.log2(by))) if by > 0 and not bias and mode == "linear" else None


@gain.numpy
def gain_numpy(X, *, by, bias, mode):
    scaled = X * X.dtype.type(by) + X.dtype.type(bias)
    return scaled if mode == "linear" else np.maximum(scaled, X.dtype.type(0))


@gain.type
def gain_type(X, *, by, bias, mode):
    return X.tensor


@gain.vjp
def gain_vjp(g, y, X, *, by, bias, mode):
    return g * by if mode == "linear" else ops.where(y > 0.0, g * by, 0.0)


@gain.rewrite
def gain_rewrite(X, *, by, bias, mode):
    return X * by if not bias and mode == "linear" else None


def reference(X, *, by, bias, mode):
    scaled = X.astype(np.float64) * by + bias
    return (scaled if mode == "linear" else np.maximum(scaled, 0)).astype(X.dtype)


@cases(gain, reference=reference)
def gain_cases(draw):
    by, bias = draw(st.sampled_from([0.5, 2.0, -1.0])), draw(st.sampled_from([0.0, 0.71]))
    x = draw(tensors(["float32", "float64"], exclude_near=(-bias / by,)))
    return call(x, by=by, bias=bias, mode=draw(st.sampled_from(["linear", "relu"])))


@cases(gain_by_power, reference=lambda X, *, by: X * X.dtype.type(2**by))
def gain_by_power_cases(draw):
    return call(draw(tensors()), by=draw(st.sampled_from([1.0, -2.0])))
