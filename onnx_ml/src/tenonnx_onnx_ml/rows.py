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
    """``float_rows`` for an array."""
    return np.atleast_2d(X).astype(np.float32, copy=False)


@remembered
def floats(numbers: Sequence[float]) -> Array:
    """A list attribute as float32."""
    return np.asarray(numbers, np.float32)


#: X has rows of features, or is a single row.
ROWS = shapes(X="features | rows features")


def fits(features: Dim, wanted: int) -> str | None:
    """Reason why ``ROWS`` has the wrong number of features, or None."""
    return f"number of features of X is not {wanted}" if differ(features, wanted) else None


# ----- weighted sums of features --------------------------------------------------------------------------------------


def weighted(rows: Value, weights: Array, intercepts: Sequence[float] | None = None) -> Value:
    """Weighted sums of features, a column per row of weights, plus intercepts."""
    sums = matmul(rows, constant(weights.T.copy()))
    return sums + constant(floats(intercepts)) if intercepts else sums


def weighted_array(rows: Array, weights: Array, intercepts: Sequence[float] | None = None) -> Array:
    """``weighted`` for arrays."""
    sums: Array = np.matmul(rows, weights.T)
    if intercepts:
        sums += floats(intercepts)
    return sums
