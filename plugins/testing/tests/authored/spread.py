"""Maximum minus minimum along axes. Axes are an attribute below version 2."""

import numpy as np
from hypothesis import strategies as st

import tenonnx_standard as ops
from tenonnx.extend import Index, at_least, axis, dtypes, holds, one_of, op, shapes, static
from tenonnx_testing import call, cases, tensors


@op("Spread", domain="com.authored", since=1)
def spread(X, axes: Index, *, keepdims=1):
    return ops.reduce_max(X, axes, keepdims=keepdims) - ops.reduce_min(X, axes, keepdims=keepdims)


@holds
def not_empty(X, axes):
    found = static(axes)
    if X.shape is None or found is None:
        return None
    return "X is empty along one of the axes" if any(X.shape[int(k)] == 0 for k in found) else None


spread.until(2, attributes=["axes"])
spread.requires(
    dtypes(X="float32 float64 int32", axes="integer"),
    shapes(axes="count"),
    at_least(count=1),
    axis("axes", of="X"),
    one_of(keepdims=(0, 1)),
    not_empty,
)


@spread.numpy
def spread_numpy(X, axes, *, keepdims):
    along = tuple(axes.tolist())
    return np.asarray(np.ptp(X, along, keepdims=bool(keepdims)) if along else np.zeros_like(X))


@spread.vjp
def spread_vjp(g, y, X, axes, *, keepdims):
    wide = g if keepdims else ops.unsqueeze(g, axes)
    top, low = ops.reduce_max(X, axes, keepdims=1), ops.reduce_min(X, axes, keepdims=1)
    at_top, at_low = (ops.cast(ops.equal(X, found), to=X.dtype) for found in (top, low))
    shares = [at / ops.reduce_sum(at, axes, keepdims=1) for at in (at_top, at_low)]
    return wide * (shares[0] - shares[1]), None


def reference(X, axes, *, keepdims):
    along = tuple(int(k) for k in axes)
    return np.asarray(X.max(along, keepdims=bool(keepdims)) - X.min(along, keepdims=bool(keepdims)))


@cases(spread, reference=reference)
def spread_cases(draw):
    x = draw(tensors(["float32", "float64", "int32"], min_rank=1, distinct=True))
    chosen = draw(st.lists(st.integers(0, x.ndim - 1), min_size=1, max_size=x.ndim, unique=True))
    flipped = draw(st.booleans())
    return call(x, [k - x.ndim for k in chosen] if flipped else chosen, keepdims=draw(st.integers(0, 1)))
