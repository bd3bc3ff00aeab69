"""Scaling, normalization, binarization and imputation of features."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tenonnx.extend import DType, TypeMismatch, Value, constant, differ, dtypes, holds, one_of, op
from tenonnx_onnx_ml.rows import ROWS, floats, to_float32
from tenonnx_standard.casting import cast
from tenonnx_standard.checking import numpy_rule
from tenonnx_standard.float_classes import isnan
from tenonnx_standard.logic import equal, greater, where
from tenonnx_standard.math import absolute, sqrt
from tenonnx_standard.reduction import reduce_max, reduce_sum

Array = np.ndarray[Any, Any]


def _has_features(X: Value, size: int) -> str | None:
    """Reason why ``size`` parameters do not fit the features, or None; a size of 1 fits all."""
    fits = size < 2 or X.rank is None or (X.ndim and not differ(X.shape[-1], size))
    return None if fits else f"number of features of X is not {size}"


def _check_features_of_array(X: Array, size: int) -> None:
    """``_has_features`` for an array, since numpy would broadcast a single feature. Raises ``ValueError``."""
    if size > 1 and X.shape[-1:] != (size,):
        raise ValueError(f"number of features of X is not {size}")


# ----- Scaler ---------------------------------------------------------------------------------------------------------


@op("Scaler", domain="ai.onnx.ml")
def scaler(X, *, offset: list[float] | None = None, scale: list[float] | None = None):
    """``(X - offset) * scale`` in float32; both have one element, or one per feature."""
    y = to_float32(X)
    if offset:
        y = y - _features(offset)
    return y * _features(scale) if scale else y


def _features(numbers: list[float]) -> Value:
    array = floats(numbers)
    return constant(array.reshape(()) if array.size == 1 else array)


@numpy_rule(scaler)
def scaler_numpy(X, *, offset, scale):
    _check_features_of_array(X, max(len(offset or ()), len(scale or ())))
    y = X.astype(np.float32, copy=False)
    if offset:
        y = y - (floats(offset) if len(offset) > 1 else floats(offset)[0])
    return y * (floats(scale) if len(scale) > 1 else floats(scale)[0]) if scale else y


def check_scaler(*, offset: Any, scale: Any) -> str | None:
    """Return the first problem of the attributes, or None."""
    sizes = {len(numbers) for numbers in (offset, scale) if numbers}
    if len(sizes) > 1 and 1 not in sizes:
        return f"offset and scale differ in length: {len(offset)} and {len(scale)} numbers"
    return None


scaler.requires(
    holds(check_scaler),
    holds(lambda X, offset, scale: _has_features(X, max(len(offset or ()), len(scale or ())))),
    dtypes(X="float integer"),
)


# ----- Normalizer -----------------------------------------------------------------------------------------------------

_NORMS = ("MAX", "L1", "L2")


@op("Normalizer", domain="ai.onnx.ml")
def normalizer(X, *, norm="MAX"):
    """Each row divided by its maximum, its L1 norm or its L2 norm, unless that is 0."""
    x = to_float32(X)
    if norm == "MAX":
        divisor = reduce_max(x, [-1])
    else:
        divisor = reduce_sum(absolute(x), [-1]) if norm == "L1" else sqrt(reduce_sum(x * x, [-1]))
    return x / where(equal(divisor, 0.0), 1.0, divisor)


@numpy_rule(normalizer)
def normalizer_numpy(X, *, norm):
    x = X.astype(np.float32, copy=False)
    if norm == "MAX":
        divisor = x.max(axis=-1, keepdims=True, initial=-np.inf)
    elif norm == "L1":
        divisor = np.abs(x).sum(axis=-1, keepdims=True)
    else:
        divisor = np.sqrt(np.square(x).sum(axis=-1, keepdims=True))
    return x / np.where(divisor == 0, np.float32(1), divisor)


normalizer.requires(one_of(norm=_NORMS), ROWS, dtypes(X="float integer"))


# ----- Binarizer ------------------------------------------------------------------------------------------------------


@op("Binarizer", domain="ai.onnx.ml")
def binarizer(X, *, threshold=0.0):
    """1 where ``X`` is greater than the threshold, else 0."""
    limit = _limit(X.dtype, threshold)
    return X * 0 + 1 if limit is None else cast(greater(X, constant(limit)), to=X.dtype)


@np.errstate(over="ignore")
def _limit(dtype: DType, threshold: float) -> Any:
    """The threshold as a number of the dtype, None if every integer is greater."""
    number = np.float32(threshold)
    if dtype.is_float:
        return dtype.numpy.type(number)
    info = np.iinfo(dtype.numpy)
    return None if number < info.min else dtype.numpy.type(info.max if number >= info.max else math.floor(number))


@binarizer.numpy
def binarizer_numpy(X, *, threshold):
    limit = _limit(DType.of(X.dtype), threshold)
    return np.ones_like(X) if limit is None else np.greater(X, limit).astype(X.dtype)


def check_binarizer(*, threshold: float) -> str | None:
    """Return the problem of the attribute, or None."""
    return "threshold is NaN" if threshold != threshold else None


binarizer.requires(holds(check_binarizer), dtypes(X="float integer"))


# ----- Imputer --------------------------------------------------------------------------------------------------------


@op("Imputer", domain="ai.onnx.ml")
def imputer(
    X,
    *,
    imputed_value_floats: list[float] | None = None,
    imputed_value_int64s: list[int] | None = None,
    replaced_value_float=0.0,
    replaced_value_int64=0,
):
    """``X`` with one value, which may be NaN, replaced by a single value or by one per feature."""
    imputed, replaced = _imputation(
        X.dtype, imputed_value_floats, imputed_value_int64s, replaced_value_float, replaced_value_int64
    )
    if replaced is None:
        return X
    missing = isnan(X) if replaced != replaced else equal(X, constant(replaced))
    return where(missing, constant(imputed if len(imputed) > 1 else imputed[0]), X)


@np.errstate(over="ignore")
def _imputation(dtype: DType, floating: Any, integers: Any, replaced_float: float, replaced_integer: int) -> Any:
    """The imputed values, and the value to replace, None if the dtype cannot represent it."""
    if dtype.is_float:
        return floats(floating).astype(dtype.numpy), dtype.numpy.type(np.float32(replaced_float))
    imputed, info = np.asarray(integers, np.int64), np.iinfo(dtype.numpy)
    if imputed.min() < info.min or imputed.max() > info.max:
        raise TypeMismatch(f"{imputer.title}: imputed values do not fit into {dtype}", given=str(integers))
    fits = info.min <= replaced_integer <= info.max
    return imputed.astype(dtype.numpy), dtype.numpy.type(replaced_integer) if fits else None


@numpy_rule(imputer)
def imputer_numpy(X, *, imputed_value_floats, imputed_value_int64s, replaced_value_float, replaced_value_int64):
    imputed, replaced = _imputation(
        DType.of(X.dtype), imputed_value_floats, imputed_value_int64s, replaced_value_float, replaced_value_int64
    )
    _check_features_of_array(X, len(imputed))
    if replaced is None:
        return X
    missing = np.isnan(X) if replaced != replaced else np.equal(X, replaced)
    return np.where(missing, imputed if len(imputed) > 1 else imputed[0], X)


def check_imputer(*, imputed_value_floats: Any, imputed_value_int64s: Any, **_: Any) -> str | None:
    """Return the first problem of the attributes, or None."""
    if bool(imputed_value_floats) != bool(imputed_value_int64s):
        return None
    given = "both" if imputed_value_floats else "none"
    return f"not exactly one of imputed_value_floats and imputed_value_int64s is given, but {given}"


def _fits(X: Value, imputed_value_floats: Any, imputed_value_int64s: Any) -> str | None:
    imputed = imputed_value_floats if X.dtype.is_float else imputed_value_int64s
    kind = "floats" if X.dtype.is_float else "int64s"
    return _has_features(X, len(imputed)) if imputed else f"imputed_value_{kind} is missing for {X.dtype}"


imputer.requires(holds(check_imputer), dtypes(X="float integer"), holds(_fits))
