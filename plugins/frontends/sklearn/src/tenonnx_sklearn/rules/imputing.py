"""Imputers: constant, by neighbors and by regression; and missing indicators."""

from __future__ import annotations

from typing import Any

import numpy as np

import tenonnx_standard as ops
from tenonnx.extend import DType, Value
from tenonnx_onnx_ml.encoders import label_encoder
from tenonnx_sklearn.algebra import beside, cast, column, columns, double, is_zero, like, smallest, total, upright
from tenonnx_sklearn.conversion import Outputs, converts, output, refusal
from tenonnx_sklearn.rules.encoding import MISSING_TEXTS
from tenonnx_sklearn.rules.metrics import FAR, distances_of_known
from tenonnx_sklearn.rules.neighbors import weights_of
from tenonnx_sklearn.tables import Table, joined


def _is_missing(model: Any, x: Value) -> Value:
    """Mask of the elements equal to ``missing_values``."""
    marked = model.missing_values
    nothing = marked is None or marked != marked
    if x.dtype is DType.string:
        marks = MISSING_TEXTS if nothing else (str(marked),)
        return ops.cast(
            label_encoder(x, keys_strings=list(marks), values_int64s=[1] * len(marks), default_int64=0), to=DType.bool
        )
    if not x.dtype.is_float:
        x = ops.cast(x, to=DType.float64)
    return ops.isnan(x) if nothing else ops.equal(x, like(x, float(marked)))


def _filled(model: Any, X: Table, k: int) -> Value:
    x, filling = X.column(k), model.statistics_[k]
    missing = _is_missing(model, x)
    if x.dtype is DType.string:
        return ops.where(missing, np.asarray(str(filling), object), x)
    x = cast(x, X.dtype)
    return ops.where(missing, like(x, float(filling)), x)


@converts("sklearn.SimpleImputer", table=True)
def simple_imputer(model: Any, X: Table) -> Outputs:
    kept = [k for k, each in enumerate(model.statistics_) if not (each is None or each != each)]
    if all(block.dtype is not DType.string for block in X.blocks):
        rows = columns(X.matrix(), kept) if len(kept) < X.shape[1] else X.matrix()
        filling = np.asarray([model.statistics_[k] for k in kept], np.float64)
        parts: list[Any] = [ops.where(_is_missing(model, rows), like(rows, filling), rows)]
    else:
        parts = [_filled(model, X, k) for k in kept]
    if model.indicator_ is not None:
        parts.append(cast(output(model.indicator_, X, "transform"), X.dtype))
    return {"transform": joined(parts, X.dtype)}


@converts("sklearn.MissingIndicator", table=True)
def missing_indicator(model: Any, X: Table) -> Outputs:
    if len(X.blocks) == 1 and len(model.features_):
        return {"transform": columns(_is_missing(model, X.blocks[0]), model.features_)}
    parts = [upright(_is_missing(model, X.column(int(k)))) for k in model.features_]
    if not parts:
        first = X.blocks[0]
        parts = [columns(_is_missing(model, first), [])]
    return {"transform": parts[0] if len(parts) == 1 else ops.concat(*parts, axis=1)}


def _with_indicator(model: Any, y: Value, X: Value) -> Outputs:
    if model.indicator_ is None:
        return {"transform": y}
    return {"transform": beside([y, cast(output(model.indicator_, X, "transform"), y.dtype)])}


@converts("sklearn.KNNImputer")
def nearest_imputer(model: Any, X: Value) -> Outputs:
    """Impute by the mean of the nearest rows with a number, by distances over common columns."""
    if model.metric != "nan_euclidean":
        raise refusal(model, f"metric={model.metric}")
    known = ~np.asarray(model._mask_fit_X)
    points = np.asarray(model._fit_X, np.float64)
    missing = _is_missing(model, X)
    distance = distances_of_known(X, missing, points, known)
    parts = []
    valid = np.asarray(getattr(model, "_valid_mask", np.ones(X.shape[1], bool)))
    for k in range(X.shape[1]):
        if not valid[k]:  # the column had no numbers
            if getattr(model, "keep_empty_features", False):
                parts.append(cast(column(missing, k), X.dtype) * 0.0)
            continue
        donors = np.flatnonzero(known[:, k])
        near, place = smallest(columns(distance, donors), min(model.n_neighbors, len(donors)))
        numbers = ops.gather(points[donors, k], place, axis=0)
        reached = near < FAR
        weights = ops.where(reached, weights_of(model, near), np.float64(0))
        sums = total(weights)
        mean = total(numbers * weights) / ops.where(is_zero(sums), np.float64(1), sums)
        filled = ops.where(is_zero(total(cast(reached, DType.float64))), np.float64(points[donors, k].mean()), mean)
        parts.append(ops.where(column(missing, k), cast(filled, X.dtype), column(X, k)))
    return _with_indicator(model, beside(parts), X)


@converts("sklearn.IterativeImputer")
def iterative_imputer(model: Any, X: Value) -> Outputs:
    """Rounds of regressions of one column on the others, in the order of fitting."""
    if model.sample_posterior:
        raise refusal(model, "sample_posterior=True, which draws at random")
    given = X
    missing = _is_missing(model, X)
    start = output(model.initial_imputer_, X, "transform")
    kept = np.flatnonzero(~np.isnan(np.asarray(model.initial_imputer_.statistics_, np.float64)))
    if len(kept) < X.shape[1]:
        missing = columns(missing, kept)
    parts = [column(double(start), k) for k in range(len(kept))]
    low, high = (np.broadcast_to(getattr(model, name), len(kept)) for name in ("_min_value", "_max_value"))
    for step in model.imputation_sequence_:
        k = int(step.feat_idx)
        rows = cast(beside([parts[int(j)] for j in step.neighbor_feat_idx]), given.dtype)
        y = double(output(step.estimator, rows, "predict"))
        y = ops.clip(y, np.float64(low[k]), np.float64(high[k])) if np.isfinite([low[k], high[k]]).any() else y
        parts[k] = ops.where(column(missing, k), y, parts[k])
    return _with_indicator(model, cast(beside(parts), given.dtype), given)
