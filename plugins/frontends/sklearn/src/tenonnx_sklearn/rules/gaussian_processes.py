"""Gaussian processes, with the standard deviation of predictions."""

from __future__ import annotations

from typing import Any

import numpy as np

import tenonnx_standard as ops
from tenonnx.extend import Value
from tenonnx_sklearn.algebra import (
    KERNELS,
    affine,
    both,
    cast,
    column,
    double,
    flat,
    is_positive,
    kernel,
    label,
    minkowski,
    squared_distances,
    total,
    upright,
    wave,
)
from tenonnx_sklearn.conversion import Outputs, convert, converts, refusal
from tenonnx_sklearn.rules.quantiles import erf


@converts("sklearn.GaussianProcessRegressor")
def regressor(model: Any, X: Value) -> Outputs:
    if not hasattr(model, "X_train_"):
        raise refusal(model, "no rows fitted")
    values = covariance(model, model.kernel_, X, model.X_train_)
    scale, mean = np.asarray(model._y_train_std, np.float64), np.asarray(model._y_train_mean, np.float64)
    alpha = np.asarray(model.alpha_)
    weights = (alpha.reshape(len(alpha), -1) * np.atleast_1d(scale)).T  # onnxruntime would round scalars to float32
    y = affine(values, weights, np.broadcast_to(np.atleast_1d(mean), len(weights)))
    spread = values @ np.linalg.inv(np.asarray(model.L_)).T
    variance = ops.relu(variances(model, model.kernel_, X) - total(spread * spread))
    deviation = ops.sqrt(upright(variance) * np.atleast_1d(scale) ** 2)
    single = alpha.ndim == 1 or alpha.shape[1] == 1
    flat_ = flat if single else lambda each: each

    def between() -> Value:
        found = covariance(model, model.kernel_, X, X) - ops.matmul(spread, ops.transpose(spread))
        parts = ops.unsqueeze(found, np.array([2], np.int64)) * np.atleast_1d(scale) ** 2
        return cast(found * float(np.ravel(scale)[0] ** 2) if single else parts, X.dtype)

    return {
        "predict": cast(flat_(y), X.dtype),
        "predict_std": cast(flat_(deviation), X.dtype),
        "predict_cov": between,
    }


@converts("sklearn.GaussianProcessClassifier")
def classifier(model: Any, X: Value) -> Outputs:
    """Gaussian process classifier; one_vs_one has only labels, as in scikit-learn."""
    found = convert(model.base_estimator_, X)
    pairs = model.n_classes_ > 2 and model.multi_class == "one_vs_one"
    return {"predict": found["predict"], "predict_proba": None if pairs else found["predict_proba"]}


@converts("sklearn._BinaryGaussianProcessClassifierLaplace")
def laplace(model: Any, X: Value) -> Outputs:
    """The integral of the logistic function over a normal distribution, approximated by five error functions."""
    from sklearn.gaussian_process._gpc import COEFS, LAMBDAS

    values = covariance(model, model.kernel_, X, model.X_train_)
    mean = affine(values, np.asarray(model.y_train_ - model.pi_, np.float64))
    solved = np.linalg.solve(np.asarray(model.L_), np.diag(np.ravel(model.W_sr_)))
    spread = affine(values, solved)
    variance = variances(model, model.kernel_, X) - total(spread * spread)
    width = 0.5 / variance
    lambdas, factors = np.ravel(LAMBDAS), np.ravel(COEFS)
    angle = upright(mean) * lambdas * ops.sqrt(upright(width) / (upright(width) + lambdas**2))
    waves = erf(angle)
    scale = ops.sqrt(float(np.pi) / width) / (ops.sqrt(variance * float(2 * np.pi)) * 2.0)
    proba = affine(waves, factors) * scale + float(0.5 * factors.sum())
    return {"predict": label(model.classes_, is_positive(mean)), "predict_proba": cast(both(proba), X.dtype)}


def covariance(model: Any, part: Any, X: Value, points: Any) -> Value:
    """The kernel between rows and the fitted points, or between the rows themselves."""
    name = type(part).__name__
    if name in ("Sum", "Product"):
        one, two = (covariance(model, each, X, points) for each in (part.k1, part.k2))
        return one + two if name == "Sum" else one * two
    if name == "Exponentiation":
        return ops.pow_(covariance(model, part.kernel, X, points), np.float64(part.exponent))
    if name == "CompoundKernel":
        raise refusal(model, f"the kernel {part}")
    if name == "ConstantKernel":
        return squared_distances(X, points) * 0.0 + float(part.constant_value)
    if name == "WhiteKernel":
        nothing = squared_distances(X, points) * 0.0
        return nothing + ops.eye_like(nothing) * float(part.noise_level) if points is X else nothing
    if name == "DotProduct":
        other = ops.transpose(double(points)) if points is X else np.asarray(points, np.float64).T
        return double(X) @ other + float(part.sigma_0**2)
    if name == "ExpSineSquared":
        waves = wave(minkowski(X, points, 2) * float(np.pi / part.periodicity), ops.sin) * float(1 / part.length_scale)
        return ops.exp(waves * waves * -2.0)
    if name == "PairwiseKernel" and part.metric in KERNELS and points is not X:
        return kernel(X, points, part.metric, part.gamma)
    if name in ("RBF", "Matern", "RationalQuadratic"):
        length = np.asarray(part.length_scale, np.float64)
        square = squared_distances(double(X) / length, (double(points) if points is X else points) / length)
        return _stationary(model, part, square)
    raise refusal(model, f"the kernel {part}")


def _stationary(model: Any, part: Any, square: Value) -> Value:
    """A kernel of the distance only."""
    name = type(part).__name__
    if name == "RBF" or (name == "Matern" and part.nu == np.inf):
        return ops.exp(square * -0.5)
    if name == "RationalQuadratic":
        return ops.pow_(square / float(2 * part.alpha) + 1.0, np.float64(-part.alpha))
    distance = ops.sqrt(square)
    if part.nu == 0.5:
        return ops.exp(-distance)
    if part.nu == 1.5:
        scaled = distance * float(np.sqrt(3))
        return (scaled + 1.0) * ops.exp(-scaled)
    if part.nu == 2.5:
        scaled = distance * float(np.sqrt(5))
        return (scaled + 1.0 + scaled * scaled / 3.0) * ops.exp(-scaled)
    raise refusal(model, f"the kernel {part}")


def variances(model: Any, part: Any, X: Value) -> Value:
    """The kernel of each row with itself: ``float64[rows]``."""
    name = type(part).__name__
    if name in ("Sum", "Product"):
        one, two = (variances(model, each, X) for each in (part.k1, part.k2))
        return one + two if name == "Sum" else one * two
    if name == "Exponentiation":
        return ops.pow_(variances(model, part.kernel, X), np.float64(part.exponent))
    rows = double(X)
    if name == "DotProduct":
        return total(rows * rows) + float(part.sigma_0**2)
    if name == "PairwiseKernel":
        return _with_itself(part, rows)
    constants = {"ConstantKernel": "constant_value", "WhiteKernel": "noise_level"}
    return column(rows, 0) * 0.0 + (float(getattr(part, constants[name])) if name in constants else 1.0)


def _with_itself(part: Any, rows: Value) -> Value:
    """A pairwise kernel of each row with itself."""
    square = total(rows * rows)
    product = square * float(part.gamma) + 1.0
    return {
        "linear": lambda: square,
        "additive_chi2": lambda: square * 0.0,
        "sigmoid": lambda: ops.tanh(product),
        "poly": lambda: ops.pow_(product, np.float64(3)),
        "polynomial": lambda: ops.pow_(product, np.float64(3)),
    }.get(part.metric, lambda: square * 0.0 + 1.0)()
