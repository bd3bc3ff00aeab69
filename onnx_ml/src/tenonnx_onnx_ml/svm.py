"""Support vector machines: kernels, one-against-one classification, regression and outlier detection."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from tenonnx.extend import Dim, DType, Value, constant, holds, limits, op
from tenonnx_onnx_ml.cache import remembered
from tenonnx_onnx_ml.coupling import coupled, coupled_array, pairs
from tenonnx_onnx_ml.rows import ROWS, fits, float_rows, float_rows_of_array, floats, weighted, weighted_array
from tenonnx_onnx_ml.scores import (
    labeled,
    labeled_array,
    labels_problem,
    transform_problem,
    transformed,
    transformed_array,
    with_second,
    with_second_array,
)
from tenonnx_standard.activation import sigmoid
from tenonnx_standard.casting import cast
from tenonnx_standard.checking import numpy_rule
from tenonnx_standard.linear_algebra import matmul
from tenonnx_standard.logic import greater, where
from tenonnx_standard.math import clip, exp, pow_
from tenonnx_standard.reduction import reduce_max, reduce_sum
from tenonnx_standard.selection import argmax
from tenonnx_standard.shapes import unsqueeze
from tenonnx_standard.trigonometry import tanh

Array = np.ndarray[Any, Any]

_KERNELS = ("LINEAR", "POLY", "RBF", "SIGMOID")

#: Probabilities of pairs are clipped to this distance from 0 and 1.
_LEAST = 1e-7


# ----- kernels --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class SvmKernel:
    """Kernel function between rows and support vectors.

    RBF needs squared distances. The matrix product, ``|a|**2 + |b|**2 - 2 a b``, is fast, but accurate only in float64;
    the body computes differences, so that it does not need float64 in a runtime.
    """

    name: str
    gamma: float
    coef0: float
    degree: float
    vectors: Array

    def of(self, x: Value) -> Value:
        if self.name == "RBF":
            difference = unsqueeze(x, [1]) - constant(self.vectors)
            return exp(reduce_sum(difference * difference, [2], keepdims=0) * -self.gamma)
        product = matmul(x, constant(self.vectors.T.copy()))
        if self.name == "LINEAR":
            return product
        product = product * self.gamma + self.coef0
        return tanh(product) if self.name == "SIGMOID" else pow_(product, self.degree)

    def of_array(self, x: Array) -> Array:
        """``of`` for an array."""
        if self.name == "RBF":
            x, vectors = x.astype(np.float64), self.vectors.astype(np.float64)
            squares = np.square(x).sum(axis=1, keepdims=True) + np.square(vectors).sum(axis=1)
            distances = np.where(np.isinf(squares), squares, squares - np.matmul(x, vectors.T) * 2)
            return np.exp(distances * -self.gamma).astype(np.float32)
        product = np.matmul(x, self.vectors.T)
        if self.name == "LINEAR":
            return product
        product = product * np.float32(self.gamma) + np.float32(self.coef0)
        return np.tanh(product) if self.name == "SIGMOID" else np.power(product, np.float32(self.degree))


@remembered
def _kernel(name: str, params: Any, support_vectors: Any, count: int) -> SvmKernel:
    return SvmKernel(name, *(params or (0.0, 0.0, 0.0)), floats(support_vectors).reshape(count, -1))  # type: ignore[call-arg]


def _kernel_problem(name: str, params: Any, vectors: Any, count: int) -> str | None:
    """The first problem of a kernel with ``count`` support vectors, or None."""
    if name not in _KERNELS:
        return f"kernel_type is not one of {', '.join(_KERNELS)}: {name!r}"
    if (params or (count and name != "LINEAR")) and len(params or ()) != 3:
        return f"kernel_params does not hold gamma, coef0 and degree: {len(params or ())} numbers"
    if count < 0 or (count and (not vectors or len(vectors) % count)):
        return f"support_vectors does not hold {count} rows of features: {len(vectors or ())} numbers"
    return None


# ----- SVMClassifier --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class Machine:
    """Classifiers of pairs of classes, as columns over the kernel values."""

    kernel: SvmKernel
    weights: Array
    rho: Array
    votes: Array


@remembered
def _machine(
    kernel_type: str, kernel_params: Any, support_vectors: Any, vectors_per_class: Any, coefficients: Any, rho: Any
) -> Machine:
    """Row ``j - 1`` has the coefficients of class i against j for vectors of i, row i those for vectors of j."""
    classes, count = len(vectors_per_class), sum(vectors_per_class)
    rows = floats(coefficients).reshape(classes - 1, count)
    limits.check_elements((classes, classes, max(classes, count)), "the pairs of classes")
    starts = np.concatenate([[0], np.cumsum(vectors_per_class)])
    weights = np.zeros((count, len(pairs(classes))), np.float32)
    votes = np.zeros((2, len(pairs(classes)), classes), np.float32)
    for pair, (i, j) in enumerate(pairs(classes)):
        of_i, of_j = (slice(starts[k], starts[k + 1]) for k in (i, j))
        weights[of_i, pair] = rows[j - 1, of_i]
        weights[of_j, pair] = rows[i, of_j]
        votes[0, pair, j] = votes[1, pair, i] = 1
    kernel = _kernel(kernel_type, kernel_params, support_vectors, count)
    return Machine(kernel, weights, floats(rho)[: len(pairs(classes))], votes)


@op("SVMClassifier", domain="ai.onnx.ml")
def svm_classifier(
    X,
    *,
    classlabels_ints: list[int] | None = None,
    classlabels_strings: list[str] | None = None,
    coefficients: list[float] | None = None,
    kernel_params: list[float] | None = None,
    kernel_type="LINEAR",
    post_transform="NONE",
    prob_a: list[float] | None = None,
    prob_b: list[float] | None = None,
    rho: list[float] | None = None,
    support_vectors: list[float] | None = None,
    vectors_per_class: list[int] | None = None,
):
    """The label with the most votes of pairwise classifiers, and their scores or the class probabilities.

    A score is the kernel values weighted by coefficients, plus ``rho``; two classes have the score of the second one:
    see ``scores.with_second``. ``prob_a`` and ``prob_b`` convert scores to probabilities (Platt scaling). Without
    support vectors the machine is linear, with a score per class. The maximum wins; of two classes, the second one wins
    if any score is positive (above 0.5 if all coefficients are positive), as in onnxruntime.
    """
    labels = classlabels_ints, classlabels_strings
    x, classes = float_rows(X), len(classlabels_ints or classlabels_strings)
    if not sum(vectors_per_class or ()):
        scores = weighted(x, floats(coefficients).reshape(classes, -1)) + rho[0]
        position = argmax(scores, axis=1, keepdims=0)
        if classes == 2 and not prob_a:
            position = where(_is_second(coefficients, reduce_max(scores, [1], keepdims=0)), 1, position)
        return labeled(position, *labels), transformed(scores, post_transform)
    machine = _machine(kernel_type, kernel_params, support_vectors, vectors_per_class, coefficients, rho)
    scores = matmul(machine.kernel.of(x), constant(machine.weights)) + constant(machine.rho)
    against, given = machine.votes
    votes = matmul(cast(scores > 0.0, to=DType.float32), constant(given - against)) + constant(against.sum(axis=0))
    label = labeled(argmax(votes, axis=1, keepdims=0), *labels)
    if prob_a:
        a, b = (constant(floats(numbers)[: len(machine.rho)]) for numbers in (prob_a, prob_b))
        r = clip(sigmoid(-(scores * a + b)), _LEAST, 1 - _LEAST)
        return label, transformed(coupled(r, classes), post_transform)
    if classes == 2:
        return label, with_second(scores, post_transform, mirrored=post_transform == "NONE")
    return label, transformed(scores, post_transform)


def _is_second(coefficients: Any, greatest: Any) -> Any:
    """Whether the greater of two scores makes the second class win, whichever class has it."""
    return greatest >= 0.5 if min(coefficients) >= 0 else greatest > 0.0


@numpy_rule(svm_classifier)
def svm_classifier_numpy(
    X,
    *,
    classlabels_ints,
    classlabels_strings,
    coefficients,
    kernel_params,
    kernel_type,
    post_transform,
    prob_a,
    prob_b,
    rho,
    support_vectors,
    vectors_per_class,
):
    labels = classlabels_ints, classlabels_strings
    x, classes = float_rows_of_array(X), len(classlabels_ints or classlabels_strings)
    if not sum(vectors_per_class or ()):
        scores = weighted_array(x, floats(coefficients).reshape(classes, -1)) + floats(rho)[0]
        position = scores.argmax(axis=1)
        if classes == 2 and not prob_a:
            position = np.where(_is_second(coefficients, scores.max(axis=1)), 1, position)
        return labeled_array(position, *labels), transformed_array(scores, post_transform)
    machine = _machine(kernel_type, kernel_params, support_vectors, vectors_per_class, coefficients, rho)
    scores = np.matmul(machine.kernel.of_array(x), machine.weights) + machine.rho
    against, given = machine.votes
    votes = np.matmul(scores > 0, given - against) + against.sum(axis=0)
    label = labeled_array(votes.argmax(axis=1), *labels)
    if prob_a:
        a, b = (floats(numbers)[: len(machine.rho)] for numbers in (prob_a, prob_b))
        r = np.clip(1 / (1 + np.exp(scores * a + b)), np.float32(_LEAST), np.float32(1 - _LEAST))
        return label, transformed_array(coupled_array(r, classes), post_transform)
    if classes == 2:
        return label, with_second_array(scores, post_transform, mirrored=post_transform == "NONE")
    return label, transformed_array(scores, post_transform)


def check_classifier(
    *,
    classlabels_ints: Any,
    classlabels_strings: Any,
    coefficients: Any,
    kernel_params: Any,
    kernel_type: str,
    post_transform: str,
    prob_a: Any,
    prob_b: Any,
    rho: Any,
    support_vectors: Any,
    vectors_per_class: Any,
) -> str | None:
    """Return the first problem of the attributes, or None."""
    problem = labels_problem(classlabels_ints, classlabels_strings, "classlabels_ints and classlabels_strings")
    problem = problem or transform_problem(post_transform)
    if problem:
        return problem
    classes, vectors = len(classlabels_ints or classlabels_strings or ()), sum(vectors_per_class or ())
    if not classes:
        return "class labels are missing: neither classlabels_ints nor classlabels_strings is given"
    problem = _kernel_problem(kernel_type, kernel_params, support_vectors, vectors)
    if problem:
        return problem
    if not vectors:
        if not coefficients or len(coefficients) % classes:
            return f"coefficients are not one row for each class: {len(coefficients or ())} for {classes}"
        return None if rho else "rho is missing"
    if classes < 2 or len(vectors_per_class) != classes or min(vectors_per_class) < 0:
        return f"vectors_per_class is not one number for each of {classes} classes: {vectors_per_class}"
    if len(coefficients or ()) != (classes - 1) * vectors:
        count = f"{classes - 1} rows of {vectors}"
        return f"coefficients are not {count}: {len(coefficients or ())}"
    count = len(pairs(classes))
    if len(prob_a or ()) != len(prob_b or ()):
        return f"prob_a and prob_b differ in length: {len(prob_a or ())} and {len(prob_b or ())}"
    for name, numbers in (("rho", rho or ()), ("prob_a", prob_a)):
        if numbers is not None and len(numbers) < count and (numbers or name == "rho"):
            return f"{name} does not have one number for each of {count} pairs of classes: {len(numbers)}"
    return None


def _fits_classes(
    features: Dim,
    classlabels_ints: Any,
    classlabels_strings: Any,
    coefficients: Any,
    support_vectors: Any,
    vectors_per_class: Any,
) -> str | None:
    count = sum(vectors_per_class or ())
    if count:
        return fits(features, len(support_vectors) // count)
    return fits(features, len(coefficients) // len(classlabels_ints or classlabels_strings))


svm_classifier.requires(holds(check_classifier), ROWS, holds(_fits_classes))


# ----- SVMRegressor ---------------------------------------------------------------------------------------------------


@op("SVMRegressor", domain="ai.onnx.ml")
def svm_regressor(
    X,
    *,
    coefficients: list[float] | None = None,
    kernel_params: list[float] | None = None,
    kernel_type="LINEAR",
    n_supports=0,
    one_class=0,
    post_transform="NONE",
    rho: list[float] | None = None,
    support_vectors: list[float] | None = None,
):
    """The kernel values, or without support vectors the features, weighted by coefficients, plus ``rho``.

    With ``one_class``, 1 for positive results and else -1. ``post_transform`` has no effect, as in onnxruntime.
    """
    x = float_rows(X)
    if n_supports:
        x = _kernel(kernel_type, kernel_params, support_vectors, n_supports).of(x)
    y = weighted(x, floats(coefficients).reshape(1, -1)) + rho[0]
    return where(greater(y, 0.0), 1.0, constant(np.float32(-1))) if one_class else y


@numpy_rule(svm_regressor)
def svm_regressor_numpy(
    X, *, coefficients, kernel_params, kernel_type, n_supports, one_class, post_transform, rho, support_vectors
):
    x = float_rows_of_array(X)
    if n_supports:
        x = _kernel(kernel_type, kernel_params, support_vectors, n_supports).of_array(x)
    y = weighted_array(x, floats(coefficients).reshape(1, -1)) + floats(rho)[0]
    return np.where(y > 0, np.float32(1), np.float32(-1)) if one_class else y


def check_regressor(
    *,
    coefficients: Any,
    kernel_params: Any,
    kernel_type: str,
    n_supports: int,
    post_transform: str,
    rho: Any,
    support_vectors: Any,
    **_: Any,
) -> str | None:
    """Return the first problem of the attributes, or None."""
    problem = transform_problem(post_transform)
    problem = problem or _kernel_problem(kernel_type, kernel_params, support_vectors, n_supports)
    if problem:
        return problem
    if not rho:
        return "rho is missing"
    if not coefficients or (n_supports and len(coefficients) != n_supports):
        count = n_supports or "each feature"
        return f"number of coefficients is not one for {count}: {len(coefficients or ())}"
    return None


def _fits_weights(features: Dim, coefficients: Any, n_supports: int, support_vectors: Any) -> str | None:
    return fits(features, len(support_vectors) // n_supports if n_supports else len(coefficients))


svm_regressor.requires(holds(check_regressor), ROWS, holds(_fits_weights))
