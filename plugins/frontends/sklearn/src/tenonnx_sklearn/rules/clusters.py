"""Clustering and mixture models."""

from __future__ import annotations

from typing import Any

import numpy as np

import tenonnx_standard as ops
from tenonnx.extend import Value
from tenonnx_sklearn.algebra import (
    affine,
    beside,
    columns,
    double,
    nearest,
    squared_distances,
    total,
)
from tenonnx_sklearn.conversion import Outputs, converts, refusal
from tenonnx_sklearn.rules.approximations import mahalanobis
from tenonnx_sklearn.rules.results import by_log_joint, outliers
from tenonnx_sklearn.tracing import traced


@converts("sklearn.KMeans", "sklearn.MiniBatchKMeans")
def k_means(model: Any, X: Value) -> Outputs:
    square = squared_distances(X, model.cluster_centers_)
    return {"predict": nearest(square), "transform": ops.sqrt(square)}


@converts("sklearn.BisectingKMeans")
def bisecting(model: Any, X: Value) -> Outputs:
    """Descend a tree to the nearer of two centers at each node; leaves have labels."""
    mean = np.asarray(getattr(model, "_X_mean", 0.0))

    def chosen(node: Any) -> Value | Any:
        if node.left is None:
            return np.int64(node.label)
        side = nearest(squared_distances(X, np.stack([node.left.center, node.right.center]) + mean))
        return ops.where(ops.equal(side, np.int64(0)), chosen(node.left), chosen(node.right))

    found = chosen(model._bisecting_tree)
    return {"predict": found, "transform": ops.sqrt(squared_distances(X, model.cluster_centers_))}


@converts("sklearn.MeanShift", "sklearn.AffinityPropagation")
def nearest_cluster(model: Any, X: Value) -> Outputs:
    if len(model.cluster_centers_) == 0:
        raise refusal(model, "no clusters")
    return {"predict": nearest(squared_distances(X, model.cluster_centers_))}


@converts("sklearn.Birch")
def birch(model: Any, X: Value) -> Outputs:
    square = squared_distances(X, model.subcluster_centers_)
    return {"predict": label_of(model.subcluster_labels_, nearest(square)), "transform": ops.sqrt(square)}


def label_of(labels: Any, index: Value) -> Value:
    return ops.gather(np.asarray(labels, np.int64), index, axis=0)


@converts("sklearn.FeatureAgglomeration")
def feature_agglomeration(model: Any, X: Value) -> Outputs:
    groups = np.unique(model.labels_)
    if model.pooling_func is not np.mean:
        pooled = [
            traced(lambda rows: model.pooling_func(rows, axis=1), columns(X, np.flatnonzero(model.labels_ == group)))
            for group in groups
        ]
        return {"transform": beside(pooled)}
    weights = np.array([(model.labels_ == group) / (model.labels_ == group).sum() for group in groups])
    return {"transform": affine(X, weights)}


@converts("sklearn.GaussianMixture", "sklearn.BayesianGaussianMixture")
def mixture(model: Any, X: Value) -> Outputs:
    if model.covariance_type not in ("full", "diag", "spherical", "tied"):
        raise refusal(model, f"covariance_type={model.covariance_type}")
    rows, scores, size = double(X), [], model.means_.shape[1]
    for k, mean in enumerate(model.means_):
        factor = model.precisions_cholesky_ if model.covariance_type == "tied" else model.precisions_cholesky_[k]
        factor = factor * np.eye(size) if np.ndim(factor) == 0 else np.diag(factor) if np.ndim(factor) == 1 else factor
        scaled = (rows - mean) @ factor
        constant = np.log(np.diag(factor)).sum() - 0.5 * size * np.log(2 * np.pi) + model._estimate_log_weights()[k]
        if hasattr(model, "degrees_of_freedom_"):
            from scipy.special import digamma

            freedom = np.broadcast_to(model.degrees_of_freedom_, len(model.means_))[k]  # tied covariances share one
            constant -= 0.5 * size * np.log(freedom)
            wishart = size * np.log(2.0) + digamma(0.5 * (freedom - np.arange(size))).sum()
            constant += 0.5 * (wishart - size / model.mean_precision_[k])
        scores.append(total(scaled * scaled) * -0.5 + float(constant))
    joint = beside(scores)
    found = by_log_joint(np.arange(len(scores)), joint)
    return {**found, "score_samples": ops.reduce_log_sum_exp(joint, np.array([1], np.int64), keepdims=0)}


@converts("sklearn.EllipticEnvelope")
def elliptic_envelope(model: Any, X: Value) -> Outputs:
    return outliers(-mahalanobis(X, model), model.offset_)
