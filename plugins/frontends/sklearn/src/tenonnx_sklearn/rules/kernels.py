"""Support vector machines and kernel methods."""

from __future__ import annotations

from typing import Any

import numpy as np

import tenonnx_standard as ops
from tenonnx.extend import DType, Value
from tenonnx_sklearn.algebra import (
    KERNELS,
    affine,
    cast,
    columns,
    double,
    flat,
    kernel,
    label,
    like,
    position,
    total,
    upright,
)
from tenonnx_sklearn.conversion import Outputs, converts, refusal
from tenonnx_sklearn.pairwise import traced_pairs
from tenonnx_sklearn.rules.iterative import coupled
from tenonnx_sklearn.rules.meta import pairwise_votes
from tenonnx_sklearn.rules.results import by_decision, outliers
from tenonnx_sklearn.tracing import traced


def _kernel_of(model: Any, X: Value, points: Any, gamma: Any) -> Value:
    if callable(model.kernel):
        return traced_pairs(model.kernel, double(X), points, **(getattr(model, "kernel_params", None) or {}))
    if not isinstance(model.kernel, str) or model.kernel not in KERNELS:
        raise refusal(model, f"kernel={model.kernel}")
    coef0, degree = (getattr(model, name, None) for name in ("coef0", "degree"))
    coef0, degree = 1.0 if coef0 is None else coef0, 3 if degree is None else degree
    return kernel(X, points, model.kernel, gamma, coef0, degree)


def _supported(model: Any, X: Value) -> Value:
    if callable(model.kernel):  # a function of two matrices; all fitted rows are stored as well
        fitted = model._BaseLibSVM__Xfit
        return columns(traced(lambda rows: model.kernel(rows, fitted), double(X)), model.support_)
    if model.kernel == "precomputed":  # with one column for each fitted row
        return columns(double(X), model.support_)
    return _kernel_of(model, X, model.support_vectors_, model._gamma)


@converts("sklearn.SVR", "sklearn.NuSVR")
def support_regressor(model: Any, X: Value) -> Outputs:
    return {"predict": cast(flat(affine(_supported(model, X), model.dual_coef_, model.intercept_)), X.dtype)}


@converts("sklearn.OneClassSVM")
def support_one_class(model: Any, X: Value) -> Outputs:
    decision = flat(affine(_supported(model, X), model.dual_coef_, model.intercept_))
    found = outliers(decision, 0.0, inclusive=False)
    return {**found, "score_samples": decision + float(np.ravel(model.offset_)[0])}


@converts("sklearn.SVC", "sklearn.NuSVC")
def support_classifier(model: Any, X: Value) -> Outputs:
    """Labels follow the decision function even if probabilities exist, which may prefer another class."""
    values, classes = _supported(model, X), len(model.classes_)
    if classes == 2:
        decision = flat(affine(values, model.dual_coef_, model.intercept_))
        return {**by_decision(model.classes_, decision), **_probabilities(model, [(0, 1)], -upright(decision), X)}
    starts = np.concatenate([[0], np.cumsum(model.n_support_)])
    pairs = [(i, j) for i in range(classes) for j in range(i + 1, classes)]
    weights = np.zeros((len(pairs), values.shape[1]))
    for row, (i, j) in enumerate(pairs):
        of_i, of_j = (slice(starts[k], starts[k + 1]) for k in (i, j))
        weights[row, of_i] = model.dual_coef_[j - 1, of_i]
        weights[row, of_j] = model.dual_coef_[i, of_j]
    scores = affine(values, weights, model.intercept_)
    _, decision = pairwise_votes(classes, cast(scores < 0.0, DType.float64), -scores)
    firsts = cast(scores > 0.0, DType.float64)
    chosen = pairwise_votes(classes, 1.0 - firsts, scores)[0]
    if model.break_ties and model.decision_function_shape == "ovr":
        chosen = decision
    shown = decision if model.decision_function_shape == "ovr" else scores
    return {
        "predict": label(model.classes_, position(chosen)),
        "decision_function": shown,
        **_probabilities(model, pairs, scores, X),
    }


def _probabilities(model: Any, pairs: list[tuple[int, int]], scores: Value, X: Value) -> Outputs:
    """Platt scaling: a logistic function of each pair's score, coupled to class probabilities."""
    if not len(model._probA):
        return {}

    def found() -> Value:
        first = ops.sigmoid(-(scores * np.asarray(model._probA, np.float64) + np.asarray(model._probB, np.float64)))
        first = ops.clip(first, np.float64(1e-7), np.float64(1 - 1e-7))
        return cast(coupled(pairs, first, len(model.classes_)), X.dtype)

    return {"predict_proba": found}


@converts("sklearn.KernelRidge")
def kernel_ridge(model: Any, X: Value) -> Outputs:
    y = affine(_kernel_of(model, X, model.X_fit_, model.gamma), np.asarray(model.dual_coef_).T)
    return {"predict": cast(y, X.dtype)}


@converts("sklearn.Nystroem")
def nystroem(model: Any, X: Value) -> Outputs:
    values = _kernel_of(model, X, model.components_, model.gamma)
    return {"transform": cast(affine(values, model.normalization_), X.dtype)}


@converts("sklearn.KernelPCA")
def kernel_components(model: Any, X: Value) -> Outputs:
    values = _kernel_of(model, X, model.X_fit_, getattr(model, "gamma_", model.gamma))
    center = model._centerer
    means = total(values, keepdims=True) / float(len(center.K_fit_rows_))
    values = values - center.K_fit_rows_ - means + float(center.K_fit_all_)
    kept = np.flatnonzero(model.eigenvalues_)
    scaled = np.zeros_like(model.eigenvectors_)
    scaled[:, kept] = model.eigenvectors_[:, kept] / np.sqrt(model.eigenvalues_[kept])
    return {"transform": cast(affine(values, scaled.T), X.dtype)}


@converts("sklearn.KernelCenterer")
def kernel_centerer(model: Any, X: Value) -> Outputs:
    means = total(X, keepdims=True) / float(len(model.K_fit_rows_))
    return {"transform": X - like(X, model.K_fit_rows_) - means + like(X, model.K_fit_all_)}
