"""Nearest neighbors, kernel density, and local outlier factor."""

from __future__ import annotations

from collections.abc import Callable
from math import lgamma
from typing import Any

import numpy as np

import tenonnx_standard as ops
from tenonnx.extend import DType, Value
from tenonnx_sklearn.algebra import (
    affine,
    beside,
    cast,
    column,
    double,
    flat,
    is_zero,
    label,
    minkowski,
    nearest,
    position,
    smallest,
    squared_distances,
    total,
    wave,
)
from tenonnx_sklearn.conversion import Outputs, converts, refusal
from tenonnx_sklearn.rules.metrics import distances, distances_by, ordered_distances
from tenonnx_sklearn.rules.results import outliers
from tenonnx_sklearn.tracing import traced


def weights_of(model: Any, distance: Value) -> Value:
    """Weight of each neighbor; if some are at distance 0, the others get weight 0."""
    if model.weights in (None, "uniform"):
        return distance * 0.0 + 1.0
    if callable(model.weights):
        return traced(model.weights, distance)
    same = cast(ops.equal(distance, np.float64(0)), DType.float64)
    some = total(same, keepdims=True) > 0.5
    return ops.where(some, same, 1.0 / ops.where(same > 0.5, np.float64(1), distance))


def _neighbors(model: Any, X: Value) -> tuple[Value, Value]:
    """Distances and indices of the nearest points."""
    return smallest(ordered_distances(model, X), model.n_neighbors)


def _several(model: Any, votes: list[Value]) -> Outputs:
    """Classes and probabilities of one or several outputs, from the sum of weights for each class."""
    if not isinstance(model.classes_, list):
        (one,) = votes
        return {"predict": label(model.classes_, position(one)), "predict_proba": one / total(one, keepdims=True)}
    labels = [label(classes, position(each)) for classes, each in zip(model.classes_, votes, strict=True)]
    return {"predict": beside(labels), "predict_proba": [each / total(each, keepdims=True) for each in votes]}


def _targets(model: Any) -> list[Any]:
    """One-hot classes of the fitted rows, for each output."""
    several = model.classes_ if isinstance(model.classes_, list) else [model.classes_]
    y = np.asarray(model._y).reshape(-1, len(several))
    return [np.eye(len(classes))[y[:, k]] for k, classes in enumerate(several)]


@converts("sklearn.NearestNeighbors")
def nearest_neighbors(model: Any, X: Value) -> Outputs:
    """Distances and indices, as ``kneighbors`` returns them for new rows."""
    distance, place = _neighbors(model, X)
    return {"distances": distance, "indices": place}


@converts("sklearn.KNeighborsClassifier")
def nearest_classifier(model: Any, X: Value) -> Outputs:
    distance, place = _neighbors(model, X)
    weights = ops.unsqueeze(weights_of(model, distance), np.array([2], np.int64))
    axes = np.array([1], np.int64)
    votes = [ops.reduce_sum(ops.gather(y, place, axis=0) * weights, axes, keepdims=0) for y in _targets(model)]
    return _several(model, votes)


@converts("sklearn.KNeighborsRegressor")
def nearest_regressor(model: Any, X: Value) -> Outputs:
    distance, place = _neighbors(model, X)
    targets = np.asarray(model._y, np.float64)
    known = ops.gather(targets.reshape(len(targets), -1), place, axis=0)
    weights = weights_of(model, distance)
    shares = ops.unsqueeze(weights / total(weights, keepdims=True), np.array([2], np.int64))
    y = ops.reduce_sum(known * shares, np.array([1], np.int64), keepdims=0)
    return {"predict": cast(flat(y) if targets.ndim == 1 else y, X.dtype)}


def _within(model: Any, X: Value) -> Value:
    """Weight of each fitted point, 0 beyond the radius."""
    distance = distances(model, X)
    inside = cast(distance <= float(model.radius), DType.float64)
    return inside * weights_of(model, distance) if model.weights == "distance" else inside


@converts("sklearn.RadiusNeighborsRegressor")
def radius_regressor(model: Any, X: Value) -> Outputs:
    if model.weights not in (None, "uniform", "distance"):
        raise refusal(model, "weights that are a function")
    weights = _within(model, X)
    targets = np.asarray(model._y, np.float64)
    y = (weights @ targets.reshape(len(targets), -1)) / total(weights, keepdims=True)
    return {"predict": cast(flat(y) if targets.ndim == 1 else y, X.dtype)}


@converts("sklearn.RadiusNeighborsClassifier")
def radius_classifier(model: Any, X: Value) -> Outputs:
    """Class by the points within the radius, or the outlier label if there are none; without one sklearn raises."""
    if model.weights not in (None, "uniform", "distance"):
        raise refusal(model, "weights that are a function")
    weights = _within(model, X)
    votes = [weights @ y for y in _targets(model)]
    result = _several(model, votes)
    labels = np.ravel(model.outlier_label_) if model.outlier_label_ is not None else [None]
    if labels[0] is None:
        return result
    alone = ops.unsqueeze(is_zero(total(weights)), np.array([1], np.int64))
    several = len(votes) > 1
    lists = (
        zip(model.classes_, result["predict_proba"], labels, strict=True)
        if several
        else [(model.classes_, result["predict_proba"], labels[0])]
    )
    proba = [
        ops.where(alone, (np.asarray(classes) == each)[None].astype(np.float64), shares)
        for classes, shares, each in lists
    ]
    text = np.asarray(model.classes_[0] if several else model.classes_).dtype.kind in "USO"
    other = np.asarray(labels[: len(votes)], object if text else np.int64)
    chosen = ops.where(alone if several else flat(alone), other, result["predict"])
    return {"predict": chosen, "predict_proba": proba if several else proba[0]}


@converts("sklearn.KNeighborsTransformer")
def nearest_graph(model: Any, X: Value) -> Outputs:
    """Dense neighbor graph: rows with distances, or ones, in the columns of the nearest points, and zeros elsewhere."""
    by_distance = model.mode == "distance"
    distance, place = smallest(ordered_distances(model, X), model.n_neighbors + by_distance)
    numbers = distance if by_distance else distance * 0.0 + 1.0
    empty = double(X) @ np.zeros((X.shape[1], len(model._fit_X)))
    return {"transform": cast(ops.scatter_elements(empty, place, numbers, axis=1), X.dtype)}


@converts("sklearn.RadiusNeighborsTransformer")
def radius_graph(model: Any, X: Value) -> Outputs:
    distance = distances(model, X)
    shown = distance if model.mode == "distance" else distance * 0.0 + 1.0
    return {"transform": cast(ops.where(distance <= float(model.radius), shown, np.float64(0)), X.dtype)}


@converts("sklearn.NearestCentroid")
def nearest_centroid(model: Any, X: Value) -> Outputs:
    if model.metric == "manhattan":
        return {"predict": label(model.classes_, nearest(minkowski(X, model.centroids_, 1)))}
    if model.metric != "euclidean":
        raise refusal(model, f"metric={model.metric}")
    deviation = getattr(model, "within_class_std_dev_", None)
    prior = getattr(model, "class_prior_", None)
    if deviation is None or prior is None:  # before scikit-learn 1.6
        return {"predict": label(model.classes_, nearest(squared_distances(X, model.centroids_)))}
    scale = np.where(deviation == 0, 1.0, deviation)
    scores = 2.0 * np.log(prior) - squared_distances(double(X) / scale, model.centroids_ / scale)
    uniform = np.isclose(prior, 1 / len(prior)).all()
    chosen = nearest(squared_distances(X, model.centroids_)) if uniform else position(scores)
    decision = column(scores, 1) - column(scores, 0) if len(prior) == 2 else scores
    return {
        "predict": label(model.classes_, chosen),
        "predict_proba": ops.softmax(scores, axis=1),
        "decision_function": decision,
    }


@converts("sklearn.LocalOutlierFactor")
def local_outliers(model: Any, X: Value) -> Outputs:
    if not model.novelty:
        raise refusal(model, "novelty=False")
    distance, place = smallest(ordered_distances(model, X), model.n_neighbors_)
    reached = ops.maximum(distance, ops.gather(model._distances_fit_X_[:, model.n_neighbors_ - 1], place, axis=0))
    axes = np.array([1], np.int64)
    density = 1.0 / (ops.reduce_mean(reached, axes, keepdims=1) + 1e-10)
    scores = -ops.reduce_mean(ops.gather(model._lrd, place, axis=0) / density, axes, keepdims=0)
    return outliers(scores, model.offset_)


@converts("sklearn.KernelDensity")
def kernel_density(model: Any, X: Value) -> Outputs:
    points, width = np.asarray(model.tree_.data), model.bandwidth_
    weights = np.ones(len(points)) if model.tree_.sample_weight is None else np.asarray(model.tree_.sample_weight)
    if model.metric == "euclidean":
        square = squared_distances(X, points)
    else:
        distance = distances_by(model, model.metric, model.metric_params or {}, X, points)
        square = distance * distance
    near = _DENSITIES[model.kernel](square * (1 / width**2)) + np.log(weights / weights.sum())
    constant = _log_volume(model.kernel, points.shape[1]) + points.shape[1] * np.log(width)
    return {"score_samples": ops.reduce_log_sum_exp(near, np.array([1], np.int64), keepdims=0) - float(constant)}


def _inside(square: Value, logs: Value | float) -> Value:
    """Logarithm of a kernel that is 0 beyond distance 1: ``logs`` within, -inf beyond."""
    far = np.float64(-np.inf)
    return ops.where(square < 1.0, square * 0.0 + logs, far)


_DENSITIES: dict[str, Callable[[Value], Value]] = {
    "gaussian": lambda square: square * -0.5,
    "tophat": lambda square: _inside(square, 0.0),
    "epanechnikov": lambda square: _inside(square, ops.log(ops.relu(1.0 - square))),
    "exponential": lambda square: -ops.sqrt(square),
    "linear": lambda square: _inside(square, ops.log(ops.relu(1.0 - ops.sqrt(square)))),
    "cosine": lambda square: _inside(square, ops.log(ops.relu(wave(ops.sqrt(square) * (np.pi / 2), ops.cos)))),
}


def _log_volume(kernel: str, size: int) -> float:
    """Logarithm of the integral of a kernel of bandwidth 1 in ``size`` dimensions."""
    ball = 0.5 * size * np.log(np.pi) - lgamma(0.5 * size + 1)
    shell = np.log(2 * np.pi) + 0.5 * (size - 2) * np.log(np.pi) - lgamma(0.5 * size)
    found = {
        "gaussian": 0.5 * size * np.log(2 * np.pi),
        "tophat": ball,
        "epanechnikov": ball + np.log(2 / (size + 2)),
        "exponential": shell + lgamma(size),
        "linear": ball - np.log(size + 1),
        "cosine": shell + _log_cosines(size),
    }
    return float(found[kernel])


def _log_cosines(size: int) -> float:
    """Logarithm of the integral of ``r ** (size - 1) * cos(r * pi / 2)`` from 0 to 1, by parts."""
    part, found = 2 / np.pi, 0.0
    for k in range(1, size + 1, 2):
        found += part
        part *= -(size - k) * (size - k - 1) * (2 / np.pi) ** 2
    return float(np.log(found))


@converts("sklearn.NeighborhoodComponentsAnalysis")
def neighborhood_components(model: Any, X: Value) -> Outputs:
    return {"transform": affine(X, model.components_)}
