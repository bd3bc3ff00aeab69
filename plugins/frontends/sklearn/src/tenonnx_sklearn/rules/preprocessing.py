"""Scaling, binning, encoding, imputing and selecting columns."""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from functools import partial
from typing import Any

import numpy as np

import tenonnx_standard as ops
from tenonnx.extend import DType, Value
from tenonnx_sklearn.algebra import beside, cast, column, columns, double, greatest, is_zero, like, total
from tenonnx_sklearn.conversion import Outputs, convert, converts
from tenonnx_sklearn.scaling import Scaling, remember
from tenonnx_sklearn.tables import Table
from tenonnx_sklearn.traced_arrays import TracedArray
from tenonnx_sklearn.traced_texts import TracedTexts
from tenonnx_sklearn.tracing import traced, traced_call


@converts("sklearn.StandardScaler", "sklearn.RobustScaler", "sklearn.MaxAbsScaler")
def scaler(model: Any, X: Value) -> Outputs:
    center = getattr(model, "mean_", None) if hasattr(model, "with_mean") else getattr(model, "center_", None)
    center = center if getattr(model, "with_mean", True) else None
    scale = getattr(model, "scale_", None)
    y = X if center is None else X - like(X, center)
    y = y if scale is None else y / like(X, scale)
    if getattr(model, "clip", False):  # of the greatest absolute number
        return {"transform": ops.clip(y, like(X, -1.0), like(X, 1.0))}
    factor = np.ones(X.shape[1]) if scale is None else 1 / np.asarray(scale, np.float64)
    shift = np.zeros(X.shape[1]) if center is None else -np.asarray(center, np.float64) * factor
    return {"transform": y if y is X else remember(y, Scaling(X, model.transform, factor, shift))}


@converts("sklearn.MinMaxScaler")
def min_max_scaler(model: Any, X: Value) -> Outputs:
    y = X * like(X, model.scale_) + like(X, model.min_)
    low, high = model.feature_range
    if model.clip:
        return {"transform": ops.clip(y, like(X, low), like(X, high))}
    return {"transform": remember(y, Scaling(X, model.transform, model.scale_, model.min_))}


@converts("sklearn.Normalizer")
def normalizer(model: Any, X: Value) -> Outputs:
    size = ops.absolute(X)
    norms = {
        "l1": lambda: total(size, keepdims=True),
        "l2": lambda: ops.sqrt(total(X * X, keepdims=True)),
        "max": lambda: greatest(size),
    }
    norm = norms[model.norm]()
    return {"transform": X / ops.where(is_zero(norm), like(X, 1.0), norm)}


@converts("sklearn.Binarizer")
def binarizer(model: Any, X: Value) -> Outputs:
    return {"transform": cast(float(model.threshold) < X, X.dtype)}


@converts("sklearn.PolynomialFeatures")
def polynomial_features(model: Any, X: Value) -> Outputs:
    """Polynomial features: each is a product of gathered columns, as many as the degree."""
    chosen = np.zeros((len(model.powers_), max(1, int(model.powers_.sum(axis=1).max()))), np.int64)
    chosen[:] = X.shape[1]
    for row, powers in enumerate(model.powers_):
        places = np.repeat(np.arange(len(powers)), powers)
        chosen[row, : len(places)] = places
    one = ops.transpose(beside([X, columns(X, [0]) * 0.0 + 1.0]))  # gathering rows is faster than gathering columns
    y = ops.gather(one, chosen[:, 0], axis=0)
    for places in chosen.T[1:]:
        y = y * ops.gather(one, places, axis=0)
    return {"transform": ops.transpose(y)}


@converts("sklearn.PowerTransformer")
def power_transformer(model: Any, X: Value) -> Outputs:
    parts = []
    for k, power in enumerate(model.lambdas_):
        x = double(column(X, k))
        if model.method == "box-cox":
            parts.append(ops.log(x) if power == 0 else (ops.pow_(x, np.float64(power)) - 1.0) / float(power))
            continue
        up, down = ops.relu(x) + 1.0, ops.relu(-x) + 1.0
        near_two = abs(power - 2) <= np.spacing(1.0)
        above = ops.log(up) if abs(power) < np.spacing(1.0) else (ops.pow_(up, np.float64(power)) - 1.0) / float(power)
        other = float(2 - power)
        below = -ops.log(down) if near_two else -(ops.pow_(down, np.float64(other)) - 1.0) / other
        parts.append(ops.where(x >= 0.0, above, below))
    y = beside(parts)
    if model.standardize:
        y = (y - model._scaler.mean_) / model._scaler.scale_
    return {"transform": remember(cast(y, X.dtype), Scaling(X, _powers_of(model)))}


def _powers_of(model: Any) -> Callable[[Any], Any]:
    """``transform`` of a ``PowerTransformer`` for any numbers: a result may overflow, and box-cox takes positive ones.

    Trees are compared with thresholds before it, since a threshold often equals a transformed row, and powers differ
    between libraries in the last bit.
    """
    plain = copy(model)
    plain.standardize = False

    def transform(rows: Any) -> Any:
        positive = rows > 0 if model.method == "box-cox" else np.ones(rows.shape, bool)
        found = plain.transform(np.where(positive, rows, rows.dtype.type(1)))
        finite = np.isfinite(found)
        scaled = model._scaler.transform(np.where(finite, found, found.dtype.type(0))) if model.standardize else found
        return np.where(positive, np.where(finite, scaled, found), -np.inf)

    return transform


@converts("sklearn.KBinsDiscretizer")
def bins(model: Any, X: Value) -> Outputs:
    parts = []
    for k, edges in enumerate(model.bin_edges_):
        inner = np.asarray(edges[1:-1], np.float64)
        x = ops.unsqueeze(double(column(X, k)), np.array([1], np.int64))
        code = total(cast(x >= inner[None], DType.float64), keepdims=True) if len(inner) else x * 0.0
        if model.encode != "ordinal":
            code = cast(ops.equal(code, np.arange(float(model.n_bins_[k]))[None]), X.dtype)
        parts.append(cast(code, X.dtype))
    return {"transform": beside(parts)}


@converts("sklearn.FunctionTransformer", table=True)
def function_transformer(model: Any, X: Table) -> Outputs:
    """FunctionTransformer: the traced function; functions that only check rows are the identity."""
    function = model.func
    if function is None or (isinstance(function, partial) and function.func.__name__ == "check_array"):
        return {"transform": X if len(X.blocks) > 1 else X.blocks[0]}
    names = [str(name) for name in getattr(model, "feature_names_in_", [])]
    options = model.kw_args or {}
    if all(block.dtype is DType.string for block in X.blocks):
        texts = X.blocks[0] if len(X.blocks) == 1 else ops.concat(*X.blocks, axis=1)
        return {"transform": traced_call(function, TracedArray, TracedTexts(texts, names), **options).value}
    return {"transform": traced(lambda rows: function(rows, **options), X.matrix(), names)}


@converts(
    *(
        f"sklearn.{name}"
        for name in (
            "GenericUnivariateSelect",
            "SelectFdr",
            "SelectFpr",
            "SelectFromModel",
            "SelectFwe",
            "SelectKBest",
            "SelectPercentile",
            "SequentialFeatureSelector",
            "VarianceThreshold",
        )
    )
)
def selector(model: Any, X: Value) -> Outputs:
    return {"transform": columns(X, model.get_support(indices=True))}


@converts("sklearn.RFE", "sklearn.RFECV")
def eliminated(model: Any, X: Value) -> Outputs:
    kept = columns(X, model.get_support(indices=True))
    return {**convert(model.estimator_, kept), "transform": kept}
