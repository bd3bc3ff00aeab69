"""Scaling and normalization of features."""

from __future__ import annotations

from typing import Any

import numpy as np

from tenonnx.extend import DType, TypeMismatch, Value, constant, op
from tenonnx_onnx_ml.scores import check_numbers
from tenonnx_standard.casting import cast
from tenonnx_standard.checking import numpy_rule
from tenonnx_standard.logic import equal, where
from tenonnx_standard.math import absolute, sqrt
from tenonnx_standard.reduction import reduce_max, reduce_sum

Array = np.ndarray[Any, Any]


def _to_float32(x: Value) -> Value:
    return x if x.dtype is DType.float32 else cast(x, to=DType.float32)


# ----- Scaler ---------------------------------------------------------------------------------------------------------


@op("Scaler", domain="ai.onnx.ml")
def scaler(X, *, offset=None, scale=None):
    """``(X - offset) * scale`` in float32; both are one number, or one for each feature."""
    y = _to_float32(X)
    if offset:
        y = y - _features(offset)
    return y * _features(scale) if scale else y


def _features(numbers: list[float]) -> Value:
    array = np.asarray(numbers, np.float32)
    return constant(array.reshape(()) if array.size == 1 else array)


@scaler.type
def _(X, *, offset, scale):
    check_numbers(scaler.title, "X", X)
    problem = check_scaler(offset=offset, scale=scale)
    if problem:
        raise TypeMismatch(f"{scaler.title}: {problem}")
    size = max(len(offset or ()), len(scale or ()))
    if X.rank is not None and size > 1 and (not X.ndim or (isinstance(X.shape[-1], int) and X.shape[-1] != size)):
        raise TypeMismatch(f"{scaler.title}: X must have {size} features", given=repr(X))
    return X.tensor.with_dtype(DType.float32)


@numpy_rule(scaler)
def _(X, *, offset, scale):
    y = X.astype(np.float32, copy=False)
    if offset:
        y = y - np.asarray(offset if len(offset) > 1 else offset[0], np.float32)
    return y * np.asarray(scale if len(scale) > 1 else scale[0], np.float32) if scale else y


def check_scaler(*, offset: Any, scale: Any) -> str | None:
    """What the attributes contradict; asked at import."""
    sizes = {len(numbers) for numbers in (offset, scale) if numbers}
    if len(sizes) > 1 and 1 not in sizes:
        return f"offset and scale must be of one length, and here they have {len(offset)} and {len(scale)} numbers"
    return None


scaler.rule("check", check_scaler)


# ----- Normalizer -----------------------------------------------------------------------------------------------------

_NORMS = ("MAX", "L1", "L2")


@op("Normalizer", domain="ai.onnx.ml")
def normalizer(X, *, norm="MAX"):
    """Each row divided by its maximum, the sum of its magnitudes (L1) or its Euclidean length (L2) if that is not 0."""
    x = _to_float32(X)
    if norm == "MAX":
        divisor = reduce_max(x, [-1])
    else:
        divisor = reduce_sum(absolute(x), [-1]) if norm == "L1" else sqrt(reduce_sum(x * x, [-1]))
    return x / where(equal(divisor, 0.0), 1.0, divisor)


@normalizer.type
def _(X, *, norm):
    problem = check_normalizer(norm=norm)
    if problem:
        raise TypeMismatch(f"{normalizer.title}: {problem}")
    check_numbers(normalizer.title, "X", X, most_axes=2)
    return X.tensor.with_dtype(DType.float32)


@numpy_rule(normalizer)
def _(X, *, norm):
    x = X.astype(np.float32, copy=False)
    if norm == "MAX":
        divisor = x.max(axis=-1, keepdims=True)
    elif norm == "L1":
        divisor = np.abs(x).sum(axis=-1, keepdims=True)
    else:
        divisor = np.sqrt(np.square(x).sum(axis=-1, keepdims=True))
    return x / np.where(divisor == 0, np.float32(1), divisor)


def check_normalizer(*, norm: str) -> str | None:
    """What the attribute contradicts; asked at import."""
    return None if norm in _NORMS else f"norm must be one of {', '.join(_NORMS)}, and here it is {norm!r}"


normalizer.rule("check", check_normalizer)
