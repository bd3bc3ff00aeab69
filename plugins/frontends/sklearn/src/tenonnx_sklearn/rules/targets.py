"""Transformed targets and the inverse transforms."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import tenonnx_standard as ops
from tenonnx.extend import Value
from tenonnx_sklearn.algebra import beside, cast, column, double, flat, like, upright
from tenonnx_sklearn.conversion import Outputs, converts, output, refusal
from tenonnx_sklearn.rules.quantiles import quantile_of
from tenonnx_sklearn.tables import Table
from tenonnx_sklearn.tracing import traced


@converts("sklearn.TransformedTargetRegressor", table=True)
def transformed_target(model: Any, X: Table) -> Outputs:
    step = model.transformer_
    y = output(model.regressor_, X, "predict")
    y = _inverted(model, step, upright(y))
    return {"predict": flat(y) if model._training_dim == 1 else y}


def _inverted(model: Any, step: Any, y: Value) -> Value:
    """Invert the transformer of a target; a pipeline from its last step."""
    for _, each in reversed(getattr(step, "steps", [("", step)])):
        if each in (None, "passthrough"):
            continue
        name = type(each).__name__
        if name not in _INVERSES:
            raise refusal(model, f"a target transformed by {name}")
        y = _INVERSES[name](each, y)
    return y


def _inverse_scaling(model: Any, y: Value) -> Value:
    scale = getattr(model, "scale_", None)
    y = y if scale is None else y * like(y, scale)
    center = getattr(model, "mean_", None) if hasattr(model, "with_mean") else getattr(model, "center_", None)
    return y if center is None or not getattr(model, "with_mean", True) else y + like(y, center)


def _inverse_min_max(model: Any, y: Value) -> Value:
    return (y - like(y, model.min_)) / like(y, model.scale_)


def _inverse_power(model: Any, y: Value) -> Value:
    if model.standardize:
        y = _inverse_scaling(model._scaler, double(y))
    parts = []
    for k, power in enumerate(np.asarray(model.lambdas_, np.float64)):
        each = double(column(y, k))
        if model.method == "box-cox":
            parts.append(_root(each, power))
            continue
        below = 1.0 - _root(-each, 2.0 - power)
        parts.append(ops.where(each >= 0.0, _root(each, power) - 1.0, below))
    return cast(beside(parts), y.dtype)


def _root(x: Value, power: float) -> Value:
    if abs(power) < np.spacing(1.0):
        return ops.exp(x)
    return ops.pow_(ops.relu(x * float(power) + 1.0), np.float64(1 / power))


def _inverse_function(model: Any, y: Value) -> Value:
    if model.inverse_func is None:
        return y
    return traced(model.inverse_func, y, **(model.inv_kw_args or {}))


_INVERSES: dict[str, Callable[[Any, Value], Value]] = {
    "StandardScaler": _inverse_scaling,
    "RobustScaler": _inverse_scaling,
    "MaxAbsScaler": _inverse_scaling,
    "MinMaxScaler": _inverse_min_max,
    "PowerTransformer": _inverse_power,
    "QuantileTransformer": quantile_of,
    "FunctionTransformer": _inverse_function,
}
