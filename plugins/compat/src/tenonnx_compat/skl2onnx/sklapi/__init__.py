"""Estimators of skl2onnx that cast and replace values, with their conversion rules."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator, RegressorMixin, TransformerMixin

import tenonnx_standard as ops
from tenonnx.extend import DType, Value
from tenonnx_sklearn import Outputs, Table, convert, converts

__all__ = ["CastRegressor", "CastTransformer", "ReplaceTransformer"]


class CastTransformer(TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Casts features to ``dtype``."""

    def __init__(self, *, dtype: Any = np.float32) -> None:
        self.dtype = dtype

    def __sklearn_is_fitted__(self) -> bool:
        return True

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Check that ``X`` can be cast. Raises ``ValueError`` otherwise."""
        self.n_features_in_ = self.transform(X).shape[1]
        return self

    def transform(self, X: Any, y: Any = None) -> Any:
        """``X`` as an array of ``dtype``. Raises ``ValueError`` if it cannot be cast."""
        return _cast(X, self.dtype)


class CastRegressor(RegressorMixin, BaseEstimator):  # type: ignore[misc]
    """Casts the predictions of a regressor to ``dtype``."""

    def __init__(self, estimator: Any, *, dtype: Any = np.float32) -> None:
        self.estimator = estimator
        self.dtype = dtype

    def __sklearn_is_fitted__(self) -> bool:
        return True

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Fit the regressor."""
        self.n_features_in_ = np.asarray(X).shape[1]
        self.estimator.fit(X, y=y, sample_weight=sample_weight)
        return self

    def predict(self, X: Any) -> Any:
        """The predictions as an array of ``dtype``."""
        return _cast(self.estimator.predict(X), self.dtype)


class ReplaceTransformer(TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Replaces the value ``from_value``, which may be NaN, by ``to_value``, and casts to ``dtype``."""

    def __init__(self, from_value: float = 0, to_value: float = np.nan, dtype: Any = np.float32) -> None:
        self.dtype = dtype
        self.from_value = from_value
        self.to_value = to_value

    def __sklearn_is_fitted__(self) -> bool:
        return True

    def fit(self, X: Any = None, y: Any = None) -> Self:
        """Count the features."""
        self.n_features_in_ = None if X is None else np.asarray(X).shape[1]
        return self

    def transform(self, X: Any) -> Any:
        """``X`` as an array of ``dtype`` with the value replaced."""
        replaced = _cast(X, self.dtype).copy()
        replaced[np.isnan(replaced) if np.isnan(self.from_value) else replaced == self.from_value] = self.to_value
        return replaced


def _cast(rows: Any, dtype: Any) -> Any:
    """An array of ``dtype``. Raises ``ValueError`` if the rows cannot be cast."""
    try:
        return np.asarray(rows).astype(dtype)
    except ValueError as error:
        raise ValueError(f"Unable to cast from {np.asarray(rows).dtype} into {dtype}.") from error


@converts("tenonnx_compat.CastTransformer")
def cast_transformer(model: Any, X: Value) -> Outputs:
    return {"transform": ops.cast(X, to=DType.of(np.dtype(model.dtype)))}


@converts("tenonnx_compat.CastRegressor", table=True)
def cast_regressor(model: Any, X: Table) -> Outputs:
    return {"predict": ops.cast(convert(model.estimator, X)["predict"], to=DType.of(np.dtype(model.dtype)))}


@converts("tenonnx_compat.ReplaceTransformer")
def replace_transformer(model: Any, X: Value) -> Outputs:
    x = ops.cast(X, to=DType.of(np.dtype(model.dtype)))
    number = x.dtype.numpy.type
    is_replaced = ops.isnan(x) if np.isnan(model.from_value) else ops.equal(x, number(model.from_value))
    return {"transform": ops.where(is_replaced, number(model.to_value), x)}
