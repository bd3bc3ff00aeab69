"""Neighbours, densities and outliers by neighbours."""

from __future__ import annotations

from typing import Any

import numpy as np

import tenonnx_standard as ops
from tenonnx.extend import DType, Value
from tenonnx_sklearn.algebra import (
    affine,
    cast,
    column,
    double,
    flat,
    label,
    minkowski,
    nearest,
    position,
    squared_distances,
    total,
)  # fmt: skip
from tenonnx_sklearn.conversion import Outputs, converts, refusal
from tenonnx_sklearn.rules.results import by_probability, outliers


def distances(model: Any, X: Value) -> Value:
    """``float64[rows, points]`` from the points that an estimator keeps."""
    metric = model.effective_metric_ if isinstance(model.effective_metric_, str) else "a function"
    powers = {"euclidean": 2.0, "manhattan": 1.0, "cityblock": 1.0, "l1": 1.0, "l2": 2.0, "chebyshev": np.inf}
    parameters = model.effective_metric_params_ or {}
    if metric == "minkowski" and parameters.get("w") is None:
        powers["minkowski"] = float(parameters.get("p", 2))
    if metric not in powers or not isinstance(model._fit_X, np.ndarray):
        raise refusal(model, f"metric={metric}")
    return minkowski(X, model._fit_X, powers[metric])


def _weights(model: Any, distance: Value) -> Value:
    """The weight of each neighbour; those at no distance leave the others none."""
    if model.weights in (None, "uniform"):
        return distance * 0.0 + 1.0
    if model.weights != "distance":
        raise refusal(model, "weights that are a function")
    same = cast(ops.equal(distance, np.float64(0)), DType.float64)
    some = total(same, keepdims=True) > 0.5
    return ops.where(some, same, 1.0 / ops.where(same > 0.5, np.float64(1), distance))


def _neighbours(model: Any, X: Value) -> tuple[Value, Value]:
    """Distances and positions of the nearest points."""
    return ops.top_k(distances(model, X), np.array([model.n_neighbors], np.int64), axis=1, largest=0)


@converts("sklearn.KNeighborsClassifier")
def nearest_classifier(model: Any, X: Value) -> Outputs:
    if isinstance(model.classes_, list):
        raise refusal(model, "several outputs")
    distance, place = _neighbours(model, X)
    chosen = ops.gather(np.eye(len(model.classes_))[model._y.ravel()], place, axis=0)
    weights = ops.unsqueeze(_weights(model, distance), np.array([2], np.int64))
    votes = ops.reduce_sum(chosen * weights, np.array([1], np.int64), keepdims=0)
    return {
        "predict": label(model.classes_, position(votes)),
        "predict_proba": cast(votes / total(votes, keepdims=True), X.dtype),
    }


@converts("sklearn.KNeighborsRegressor")
def nearest_regressor(model: Any, X: Value) -> Outputs:
    distance, place = _neighbours(model, X)
    targets = np.asarray(model._y, np.float64)
    known = ops.gather(targets.reshape(len(targets), -1), place, axis=0)
    weights = _weights(model, distance)
    shares = ops.unsqueeze(weights / total(weights, keepdims=True), np.array([2], np.int64))
    y = ops.reduce_sum(known * shares, np.array([1], np.int64), keepdims=0)
    return {"predict": cast(flat(y) if targets.ndim == 1 else y, X.dtype)}


@converts("sklearn.RadiusNeighborsRegressor")
def radius_regressor(model: Any, X: Value) -> Outputs:
    distance = distances(model, X)
    inside = cast(distance <= float(model.radius), DType.float64)
    if model.weights == "distance":
        raise refusal(model, "weights=distance")
    targets = np.asarray(model._y, np.float64)
    y = (inside @ targets.reshape(len(targets), -1)) / total(inside, keepdims=True)
    return {"predict": cast(flat(y) if targets.ndim == 1 else y, X.dtype)}


@converts("sklearn.RadiusNeighborsClassifier")
def radius_classifier(model: Any, X: Value) -> Outputs:
    if isinstance(model.classes_, list) or model.weights not in (None, "uniform"):
        raise refusal(model, "several outputs, or weights")
    if model.outlier_label_ not in (None, [None]):
        raise refusal(model, "outlier_label")
    inside = cast(distances(model, X) <= float(model.radius), DType.float64)
    votes = inside @ np.eye(len(model.classes_))[np.ravel(model._y)]
    return by_probability(model.classes_, cast(votes / total(votes, keepdims=True), X.dtype))


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
    count = np.array([model.n_neighbors_], np.int64)
    distance, place = ops.top_k(distances(model, X), count, axis=1, largest=0)
    reached = ops.maximum(distance, ops.gather(model._distances_fit_X_[:, model.n_neighbors_ - 1], place, axis=0))
    axes = np.array([1], np.int64)
    density = 1.0 / (ops.reduce_mean(reached, axes, keepdims=1) + 1e-10)
    scores = -ops.reduce_mean(ops.gather(model._lrd, place, axis=0) / density, axes, keepdims=0)
    return outliers(scores, model.offset_)


@converts("sklearn.KernelDensity")
def kernel_density(model: Any, X: Value) -> Outputs:
    if model.kernel != "gaussian" or model.metric != "euclidean":
        raise refusal(model, f"kernel={model.kernel}, metric={model.metric}")
    points = np.asarray(model.tree_.data)
    weights = np.ones(len(points)) if model.tree_.sample_weight is None else np.asarray(model.tree_.sample_weight)
    near = squared_distances(X, points) * (-0.5 / model.bandwidth_**2) + np.log(weights / weights.sum())
    constant = points.shape[1] * (0.5 * np.log(2 * np.pi) + np.log(model.bandwidth_))
    return {"score_samples": ops.reduce_log_sum_exp(near, np.array([1], np.int64), keepdims=0) - float(constant)}


@converts("sklearn.NeighborhoodComponentsAnalysis")
def neighbourhood_components(model: Any, X: Value) -> Outputs:
    return {"transform": affine(X, model.components_)}
