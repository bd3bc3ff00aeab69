"""Rows of features as a float32 matrix, and their checks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tenonnx.extend import Dim, DType, Value, constant, differ, shapes
from tenonnx_onnx_ml.cache import remembered
from tenonnx_standard.casting import cast
from tenonnx_standard.linear_algebra import matmul
from tenonnx_standard.shapes import reshape

Array = np.ndarray[Any, Any]


def to_float32(x: Value) -> Value:
    return x if x.dtype is DType.float32 else cast(x, to=DType.float32)


def float_rows(X: Value) -> Value:
    """``X`` as a float32 matrix; a vector is one row."""
    return to_float32(reshape(X, [1, -1]) if X.ndim == 1 else X)


def float_rows_of_array(X: Array) -> Array:
    """``float_rows`` of an array."""
    return np.atleast_2d(X).astype(np.float32, copy=False)


@remembered
def floats(numbers: Sequence[float]) -> Array:
    """A list of an attribute as float32."""
    return np.asarray(numbers, np.float32)


#: X holds rows of features, or one row.
ROWS = shapes(X="features | rows features")


def fits(features: Dim, wanted: int) -> str | None:
    """Return the problem of the number of features of ``ROWS``, or None."""
    return f"number of features of X is not {wanted}" if differ(features, wanted) else None


# ----- weighted sums of features --------------------------------------------------------------------------------------


def weighted(rows: Value, weights: Array, intercepts: Sequence[float] | None = None) -> Value:
    """A column of sums for each row of weights, plus what each, or all of them, begin with."""
    sums = matmul(rows, constant(weights.T.copy()))
    return sums + constant(floats(intercepts)) if intercepts else sums


def weighted_array(rows: Array, weights: Array, intercepts: Sequence[float] | None = None) -> Array:
    """``weighted`` of arrays."""
    sums: Array = np.matmul(rows, weights.T)
    if intercepts:
        sums += floats(intercepts)
    return sums
