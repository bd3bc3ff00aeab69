"""Distances between rows and fitted points, by scikit-learn's metrics and by functions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import tenonnx_standard as ops
from tenonnx.extend import DType, Value
from tenonnx_sklearn.algebra import cast, column, double, is_zero, kernel, minkowski, squared_distances, total, wave
from tenonnx_sklearn.conversion import refusal
from tenonnx_sklearn.pairwise import traced_pairs

#: A very large distance, instead of an undefined one.
FAR = np.float64(1e300)


def distances(model: Any, X: Value) -> Value:
    """Distances ``float64[rows, points]`` from the fitted points of an estimator."""
    if model.effective_metric_ == "precomputed":
        return double(X)
    points = np.asarray(model._fit_X, np.float64)
    return distances_by(model, model.effective_metric_, model.effective_metric_params_ or {}, X, points)


def distances_by(model: Any, metric: Any, parameters: dict[str, Any], X: Value, points: Any) -> Value:
    """Distances ``float64[rows, points]`` by a metric of scikit-learn, or by a function of two rows."""
    if callable(metric):
        return traced_pairs(metric, double(X), points, **parameters)
    if metric == "minkowski":
        weights, power = parameters.get("w"), float(parameters.get("p", 2))
        scale = 1.0 if weights is None else np.asarray(weights, np.float64) ** (1 / power)
        return minkowski(double(X) * scale, points * scale, power)
    if metric in _POWERS:
        return minkowski(X, points, _POWERS[metric])
    if metric == "seuclidean":
        scale = 1 / np.sqrt(np.asarray(parameters["V"], np.float64))
        return minkowski(double(X) * scale, points * scale, 2)
    if metric == "mahalanobis":
        inverse = parameters["VI"] if "VI" in parameters else np.linalg.inv(parameters["V"])
        factor = np.linalg.cholesky(np.asarray(inverse, np.float64))
        return minkowski(double(X) @ factor, points @ factor, 2)
    if metric == "sqeuclidean":
        return squared_distances(X, points)
    if metric == "nan_euclidean":
        return distances_of_known(X, ops.isnan(X), points, ~np.isnan(points))
    if metric == "cosine":
        return ops.relu(1.0 - kernel(X, points, "cosine"))
    if metric == "correlation":
        rows = double(X) - ops.reduce_mean(double(X), np.array([1], np.int64), keepdims=1)
        return ops.relu(1.0 - kernel(rows, points - points.mean(axis=1, keepdims=True), "cosine"))
    if metric == "haversine":
        return _haversine(double(X), points)
    if metric in _OF_SETS:
        return _of_sets(metric, X, points)
    if metric not in _BY_COLUMN:
        raise refusal(model, f"metric={metric}")
    return _BY_COLUMN[metric](ops.unsqueeze(double(X), np.array([1], np.int64)), points[None])


def ordered_distances(model: Any, X: Value) -> Value:
    """Distances for selecting the smallest; metrics with many ties, such as those of sets, are rejected."""
    if model.effective_metric_ in (*_OF_SETS, "hamming"):
        raise refusal(model, f"metric={model.effective_metric_}, by which many are equally far; scikit-learn takes any")
    return distances(model, X)


_POWERS = {
    "euclidean": 2.0,
    "manhattan": 1.0,
    "cityblock": 1.0,
    "l1": 1.0,
    "l2": 2.0,
    "chebyshev": np.inf,
    "infinity": np.inf,
}


def distances_of_known(X: Value, gone: Value, points: Any, known: Any) -> Value:
    """Euclidean distances over common columns, scaled to all columns; ``FAR`` without common columns."""
    center = np.where(known, points, 0.0).sum(axis=0) / np.maximum(known.sum(axis=0), 1)
    is_known, points = known.T.astype(np.float64), np.where(known, points - center, 0.0)
    here, rows = cast(ops.not_(gone), DType.float64), ops.where(gone, np.float64(0), double(X) - center)
    shared = here @ is_known
    squares = (rows * rows) @ is_known + here @ (points * points).T - (rows * 2.0) @ points.T
    none = is_zero(shared)
    scaled = ops.relu(squares) / ops.where(none, np.float64(1), shared) * float(points.shape[1])
    return ops.where(none, FAR, ops.sqrt(scaled))


def _haversine(x: Value, points: Any) -> Value:
    """The angle between points given as latitude and longitude in radians."""
    halves = ops.unsqueeze(x, np.array([1], np.int64)) * 0.5 - points[None] * 0.5
    sines = wave(halves, ops.sin)
    square = sines * sines
    cosines = ops.unsqueeze(wave(column(x, 0), ops.cos), np.array([1], np.int64)) * np.cos(points[:, 0])
    found = ops.gather(square, np.int64(0), axis=2) + cosines * ops.gather(square, np.int64(1), axis=2)
    root = ops.sqrt(ops.clip(found, np.float64(0), np.float64(1)))
    return double(ops.asin(cast(root, DType.float32))) * 2.0


def _of_sets(metric: str, X: Value, points: Any) -> Value:
    """Metrics on rows as sets of their nonzero columns."""
    x, y = cast(ops.not_(is_zero(X)), DType.float64), (points != 0).astype(np.float64)
    both = x @ y.T
    apart = total(x, keepdims=True) + y.sum(axis=1) - both * 2.0
    above, below = _OF_SETS[metric](both, apart, float(y.shape[1]))
    return ops.where(is_zero(below), np.float64(0), above / ops.where(is_zero(below), np.float64(1), below))


#: Numerators and denominators from the numbers of columns in both sets, in exactly one, and in total.
_OF_SETS: dict[str, Callable[[Value, Value, float], tuple[Value, Value]]] = {
    "jaccard": lambda both, apart, size: (apart, both + apart),
    "dice": lambda both, apart, size: (apart, both * 2.0 + apart),
    "rogerstanimoto": lambda both, apart, size: (apart * 2.0, apart + size),
    "russellrao": lambda both, apart, size: (size - both, both * 0.0 + size),
    "sokalsneath": lambda both, apart, size: (apart, apart + both * 0.5),
}


def _summed(X: Value) -> Value:
    return ops.reduce_sum(X, np.array([2], np.int64), keepdims=0)


def _canberra(x: Value, y: Any) -> Value:
    size = ops.absolute(x) + np.abs(y)
    return _summed(ops.absolute(x - y) / ops.where(is_zero(size), np.float64(1), size))


def _bray_curtis(x: Value, y: Any) -> Value:
    return _summed(ops.absolute(x - y)) / _summed(ops.absolute(x) + np.abs(y))


def _hamming(x: Value, y: Any) -> Value:
    return ops.reduce_mean(cast(ops.not_(ops.equal(x, y)), DType.float64), np.array([2], np.int64), keepdims=0)


_BY_COLUMN = {"canberra": _canberra, "braycurtis": _bray_curtis, "hamming": _hamming}
