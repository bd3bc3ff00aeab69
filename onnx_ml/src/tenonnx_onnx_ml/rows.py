"""What ops on rows of features share: the rows as a float32 matrix, and the check that they fit the model."""

from __future__ import annotations

from typing import Any

import numpy as np

from tenonnx.extend import Dim, DType, Op, TypeMismatch, Value, shapes
from tenonnx_onnx_ml.cache import remembered
from tenonnx_standard.casting import cast
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
def floats(numbers: list[float]) -> Array:
    """A list of an attribute as float32."""
    return np.asarray(numbers, np.float32)


#: X holds rows of features, or one row.
ROWS = shapes(X="features | rows features")


def row_count(op: Op, X: Value, features: int) -> Dim:
    """The number of ``ROWS``. Raises ``TypeMismatch`` unless they have so many features."""
    if X.rank is None:
        return None
    if isinstance(X.shape[-1], int) and X.shape[-1] != features:
        raise TypeMismatch(f"{op.title}: X must have {features} features", given=repr(X))
    return X.shape[0] if X.ndim == 2 else 1
