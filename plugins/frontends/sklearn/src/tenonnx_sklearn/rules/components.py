"""Matrix decompositions and projections."""

from __future__ import annotations

from typing import Any

import numpy as np

from tenonnx.extend import Value
from tenonnx_sklearn.algebra import (
    affine,
    like,
)
from tenonnx_sklearn.conversion import Outputs, converts


@converts("sklearn.PCA", "sklearn.IncrementalPCA")
def components(model: Any, X: Value) -> Outputs:
    centered = X if model.mean_ is None else X - like(X, model.mean_)
    y = affine(centered, model.components_)
    if model.whiten:
        scale = np.sqrt(model.explained_variance_)
        y = y / like(X, np.maximum(scale, np.finfo(scale.dtype).eps))
    return {"transform": y}


@converts("sklearn.TruncatedSVD")
def truncated(model: Any, X: Value) -> Outputs:
    return {"transform": affine(X, model.components_)}


@converts("sklearn.GaussianRandomProjection", "sklearn.SparseRandomProjection")
def random_projection(model: Any, X: Value) -> Outputs:
    weights = model.components_
    return {"transform": affine(X, weights.toarray() if hasattr(weights, "toarray") else weights)}


@converts("sklearn.FastICA")
def independent(model: Any, X: Value) -> Outputs:
    centered = X - like(X, model.mean_) if model.whiten else X
    return {"transform": affine(centered, model.components_)}


@converts("sklearn.FactorAnalysis")
def factors(model: Any, X: Value) -> Outputs:
    weights = model.components_ / model.noise_variance_
    inverse = np.linalg.inv(np.eye(len(weights)) + weights @ model.components_.T)
    return {"transform": affine(X - like(X, model.mean_), inverse @ weights)}


@converts("sklearn.SparsePCA", "sklearn.MiniBatchSparsePCA")
def sparse_components(model: Any, X: Value) -> Outputs:
    gram = model.components_ @ model.components_.T
    inverse = np.linalg.solve(gram + model.ridge_alpha * np.eye(len(gram)), model.components_)
    return {"transform": affine(X - like(X, model.mean_), inverse)}
