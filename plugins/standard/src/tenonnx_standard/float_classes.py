"""IsInf and IsNaN."""

from __future__ import annotations

from typing import Any

import numpy as np

from tenonnx.extend import DType, constant, op
from tenonnx_standard.casting import cast
from tenonnx_standard.logic import and_, greater, less, not_, or_
from tenonnx_standard.math import neg

Array = np.ndarray[Any, Any]


@op("IsNaN", since=9, broadcasts=True)
def isnan(X):
    """Whether X is not a number."""
    x = cast(X, to=DType.float32) if X.dtype.bits == 8 else X
    return not_(or_(less(x, 1), greater(x, 0)))


@op("IsInf", since=10, broadcasts=True)
def isinf(X, *, detect_negative=1, detect_positive=1):
    """Whether X is infinite, for the signs to detect."""
    x = cast(X, to=DType.float32) if X.dtype.bits == 8 else X
    dtype = x.dtype.numpy
    greatest = constant(np.nextafter(np.asarray(np.inf, dtype), np.asarray(0, dtype)), x.dtype)
    positive, negative = greater(x, greatest), less(x, neg(greatest))
    if detect_positive and detect_negative:
        return or_(positive, negative)
    if detect_positive or detect_negative:
        return positive if detect_positive else negative
    return and_(positive, negative)


isnan.numpy(np.isnan)
isnan.vjp(lambda g, y, X: None)
isinf.vjp(lambda g, y, X, **_: None)


@isinf.numpy
def isinf_numpy(X: Array, *, detect_negative: int = 1, detect_positive: int = 1) -> Array:
    if detect_negative and detect_positive:
        return np.isinf(X)
    return np.isinf(X) & ((X > 0) if detect_positive else (X < 0) if detect_negative else False)
