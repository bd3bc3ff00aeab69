"""``X * sigmoid(alpha * X)``."""

import numpy as np
from hypothesis import strategies as st

import tenonnx_standard as ops
from tenonnx.extend import floats, op
from tenonnx_testing import call, cases, tensors


@op("Swish", domain="com.authored", elementwise=True)
def swish(X, *, alpha=1.0):
    return X * ops.sigmoid(X * alpha)


swish.requires(floats("X"))


@swish.numpy
def swish_numpy(X, *, alpha):
    gate = np.exp(-np.logaddexp(0, -(X * X.dtype.type(alpha))))
    return (X * gate).astype(X.dtype)


@swish.type
def swish_type(X, *, alpha):
    return X.tensor


@swish.vjp
def swish_vjp(g, y, X, *, alpha):
    gate = ops.sigmoid(X * alpha)
    return g * gate * (1.0 + X * alpha * (1.0 - gate))


def reference(X, *, alpha):
    wide = X.astype(np.float64)
    return (wide / (1 + np.exp(-alpha * wide))).astype(X.dtype)


@cases(swish, reference=reference)
def swish_cases(draw):
    x = draw(tensors(["float32", "float64", "float16"]))
    return call(x, alpha=draw(st.sampled_from([0.5, 1.0, 2.0])))
