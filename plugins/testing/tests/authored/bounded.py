"""``X`` clipped to two optional bounds."""

import numpy as np
from hypothesis import strategies as st

import tenonnx_standard as ops
from tenonnx.extend import dtypes, op, same_dtype, shapes
from tenonnx_testing import call, cases, tensors


@op("Bounded", domain="com.authored")
def bounded(X, low=None, high=None):
    raised = X if low is None else ops.maximum(X, low)
    return raised if high is None else ops.minimum(raised, high)


bounded.requires(dtypes(X="float32 float64 int32 int64"), same_dtype("X", "low", "high"), shapes(low="", high=""))


@bounded.numpy
def bounded_numpy(X, low, high):
    raised = X if low is None else np.maximum(X, low)
    return raised if high is None else np.minimum(raised, high)


@bounded.type
def bounded_type(X, low, high):
    return X.tensor


@bounded.vjp
def bounded_vjp(g, y, X, low, high):
    zero = ops.cast(0.0, to=X.dtype)
    raised = X if low is None else ops.maximum(X, low)
    kept = g if high is None else ops.where(raised > high, zero, g)
    inside = kept if low is None else ops.where(low > X, zero, kept)
    at_low = None if low is None else ops.reduce_sum(ops.where(low > X, kept, zero), keepdims=0)
    at_high = None if high is None else ops.reduce_sum(ops.where(raised > high, g, zero), keepdims=0)
    return inside, at_low, at_high


def reference(X, low, high):
    raised = X if low is None else np.where(low > X, low, X)
    return raised if high is None else np.where(high < raised, high, raised)


@cases(bounded, reference=reference)
def bounded_cases(draw):
    x = draw(tensors(["float32", "float64", "int32", "int64"], distinct=True))
    low = np.asarray(-2.03 if x.dtype.kind == "f" else -2, x.dtype)
    high = np.asarray(1.47 if x.dtype.kind == "f" else 1, x.dtype)
    return call(x, draw(st.sampled_from([None, low])), draw(st.sampled_from([None, high])))
