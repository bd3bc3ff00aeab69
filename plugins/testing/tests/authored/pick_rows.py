"""Rows at given indices, positive or negative."""

import numpy as np

import tenonnx_standard as ops
from tenonnx.extend import Index, holds, integers, op, shapes, static
from tenonnx_testing import call, cases, tensors


@op("PickRows", domain="com.authored", data_movement=True)
def pick_rows(X, places: Index):
    return ops.gather(X, places)


@holds
def within(X, places):
    found = static(places)
    rows = X.shape[0] if X.shape else None
    if found is None or not isinstance(rows, int) or not found.size:
        return None
    return None if -rows <= found.min() and found.max() < rows else "places lies outside of X"


pick_rows.requires(shapes(X="rows ...", places="count"), integers("places"), within)


@pick_rows.numpy
def pick_rows_numpy(X, places):
    return X[places]


@pick_rows.type
def pick_rows_type(X, places):
    return X.tensor.with_shape(None if X.shape is None or places.shape is None else (places.shape[0], *X.shape[1:]))


@pick_rows.vjp
def pick_rows_vjp(g, y, X, places):
    zeros = ops.expand(ops.cast(0.0, to=g.dtype), ops.shape(X))
    return ops.scatter_nd(zeros, ops.unsqueeze(places, [-1]), g, reduction="add"), None


def reference(X, places):
    return np.stack([X[p] for p in places])


@cases(pick_rows, reference=reference)
def pick_rows_cases(draw):
    x = draw(tensors(["float32", "float64", "int64"], min_rank=1))
    rows = x.shape[0]
    return call(x, draw(tensors("int64", min_rank=1, max_rank=1, min_value=-rows, max_value=rows - 1)))
