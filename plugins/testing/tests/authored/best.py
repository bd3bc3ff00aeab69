"""The maximum along an axis and its index; of equal elements, the first or the last."""

import numpy as np
from hypothesis import strategies as st

import tenonnx_standard as ops
from tenonnx.extend import DType, axis, dtypes, holds, one_of, op
from tenonnx_testing import axis_of, call, cases, tensors


@op("Best", domain="com.authored")
def best(X, *, axis=0, last=0):
    place = ops.argmax(X, axis=axis, keepdims=0, select_last_index=last)
    return ops.reduce_max(X, [axis], keepdims=0), place


@holds
def not_empty(X, axis):
    return "X is empty along the axis" if X.shape is not None and X.shape[axis] == 0 else None


best.requires(dtypes(X="float32 float64 int32 int64 uint8"), axis("axis", of="X"), one_of(last=(0, 1)), not_empty)


@best.numpy
def best_numpy(X, *, axis, last):
    place = X.shape[axis] - 1 - np.flip(X, axis).argmax(axis) if last else X.argmax(axis)
    return np.asarray(X.max(axis)), np.asarray(place, np.int64)


@best.type
def best_type(X, *, axis, last):
    if X.shape is None:
        return X.tensor, X.tensor.with_dtype(DType.int64)
    sides = tuple(d for k, d in enumerate(X.shape) if k != axis % X.rank)
    return X.tensor.with_shape(sides), X.tensor.with_dtype(DType.int64).with_shape(sides)


@best.vjp
def best_vjp(g, y, X, *, axis, last):
    of_greatest, _ = g
    wide = ops.unsqueeze(of_greatest, [axis])
    ties = ops.cast(ops.equal(X, ops.unsqueeze(y[0], [axis])), to=X.dtype)
    return wide * ties / ops.reduce_sum(ties, [axis], keepdims=1)


def reference(X, *, axis, last):
    rows = np.moveaxis(X, axis, -1)
    places = np.empty(rows.shape[:-1], np.int64)
    for at in np.ndindex(places.shape):
        row = rows[at].tolist()
        places[at] = len(row) - 1 - row[::-1].index(max(row)) if last else row.index(max(row))
    return np.asarray(X.max(axis)), places


@cases(best, reference=reference)
def best_cases(draw):
    x = draw(tensors(["float32", "float64", "int32", "int64", "uint8"], min_rank=1, distinct=True))
    return call(x, axis=draw(axis_of(x)), last=draw(st.integers(0, 1)))
