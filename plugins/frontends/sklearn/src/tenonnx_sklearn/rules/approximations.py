"""Kernel approximations, robust covariance and Isomap."""

from __future__ import annotations

from typing import Any

import numpy as np

import tenonnx_standard as ops
from tenonnx.extend import Value
from tenonnx_sklearn.algebra import affine, beside, cast, column, double, is_zero, smallest, total, wave
from tenonnx_sklearn.conversion import Outputs, converts, refusal
from tenonnx_sklearn.rules.kernels import kernel_components
from tenonnx_sklearn.rules.neighbors import distances


@converts("sklearn.RBFSampler")
def radial(model: Any, X: Value) -> Outputs:
    waves = wave(affine(double(X), model.random_weights_.T, model.random_offset_), ops.cos)
    return {"transform": cast(waves * float(np.sqrt(2.0 / model.n_components)), X.dtype)}


@converts("sklearn.SkewedChi2Sampler")
def skewed_chi_squared(model: Any, X: Value) -> Outputs:
    logs = ops.log(double(X) + float(model.skewedness))
    waves = wave(affine(logs, model.random_weights_.T, model.random_offset_), ops.cos)
    return {"transform": cast(waves * float(np.sqrt(2.0 / model.n_components)), X.dtype)}


@converts("sklearn.AdditiveChi2Sampler")
def additive_chi_squared(model: Any, X: Value) -> Outputs:
    """Additive chi-squared features; those of 0 are 0."""
    interval = model.sample_interval
    interval = {1: 0.8, 2: 0.5, 3: 0.4}[model.sample_steps] if interval is None else interval
    rows = double(X)
    nothing = is_zero(rows)
    logs = ops.log(ops.where(nothing, np.float64(1), rows))
    parts = [ops.sqrt(rows * float(interval))]
    for step in range(1, model.sample_steps):
        size = ops.sqrt(rows * float(2 * interval / np.cosh(np.pi * step * interval)))
        angle = logs * float(step * interval)
        parts += [ops.where(nothing, np.float64(0), size * wave(angle, each)) for each in (ops.cos, ops.sin)]
    return {"transform": cast(beside(parts), X.dtype)}


@converts("sklearn.PolynomialCountSketch")
def count_sketch(model: Any, X: Value) -> Outputs:
    """Polynomial count sketch: the inverse Fourier transform of a product of transforms, each as two matrices."""
    rows, size = double(X) * float(np.sqrt(model.gamma)), model.n_components
    if model.coef0 != 0:
        rows = beside([rows, column(rows, 0) * 0.0 + float(np.sqrt(model.coef0))])
    angles = 2 * np.pi * np.outer(np.arange(size), np.arange(size)) / size
    real, imaginary = None, None
    for places, signs in zip(model.indexHash_, model.bitHash_, strict=True):
        sketch = np.zeros((len(places), size))
        sketch[np.arange(len(places)), places] = signs
        a, b = rows @ (sketch @ np.cos(angles)), rows @ (sketch @ -np.sin(angles))
        if real is None or imaginary is None:
            real, imaginary = a, b
        else:
            real, imaginary = real * a - imaginary * b, real * b + imaginary * a
    assert real is not None
    assert imaginary is not None
    back = (real @ np.cos(angles) - imaginary @ np.sin(angles)) / float(size)
    return {"transform": cast(back, X.dtype)}


def mahalanobis(X: Value, model: Any) -> Value:
    """The squared Mahalanobis distance of each row from the center, by the fitted precision matrix."""
    gaps = double(X) - model.location_
    return total((gaps @ model.get_precision()) * gaps)


_COVARIANCES = "EmpiricalCovariance GraphicalLasso GraphicalLassoCV LedoitWolf MinCovDet OAS ShrunkCovariance"


@converts(*(f"sklearn.{name}" for name in _COVARIANCES.split()))
def covariance(model: Any, X: Value) -> Outputs:
    return {"mahalanobis": cast(mahalanobis(X, model), X.dtype)}


@converts("sklearn.Isomap")
def isomap(model: Any, X: Value) -> Outputs:
    """Shortest paths to each point through the nearest ones, followed by kernel PCA."""
    if model.n_neighbors is None:
        raise refusal(model, "a radius of neighbors")
    distance, place = smallest(distances(model.nbrs_, X), model.n_neighbors)
    ways = ops.gather(np.asarray(model.dist_matrix_, np.float64), place, axis=0)
    ways = ops.reduce_min(ways + ops.unsqueeze(distance, np.array([2], np.int64)), np.array([1], np.int64), keepdims=0)
    found = kernel_components(model.kernel_pca_, ways * ways * -0.5)["transform"]
    return {"transform": cast(found, X.dtype)}
