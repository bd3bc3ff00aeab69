"""Linear classification."""

from __future__ import annotations

from typing import Any

import numpy as np

from tenonnx.extend import DType, TensorType, TypeMismatch, constant, op
from tenonnx_onnx_ml.scores import (
    check_numbers,
    label_dtype,
    labelled,
    labelled_array,
    labels_problem,
    transform_problem,
    transformed,
    transformed_array,
    with_second,
    with_second_array,
)
from tenonnx_standard.casting import cast
from tenonnx_standard.checking import numpy_rule
from tenonnx_standard.linear_algebra import matmul
from tenonnx_standard.selection import argmax
from tenonnx_standard.shape import reshape

Array = np.ndarray[Any, Any]


@op("LinearClassifier", domain="ai.onnx.ml")
def linear_classifier(
    X,
    *,
    classlabels_ints=None,
    classlabels_strings=None,
    coefficients,
    intercepts=None,
    multi_class=0,
    post_transform="NONE",
):
    """The label of the greatest of the scores ``X @ coefficients.T + intercepts``, and the scores after a transform.

    One score for two labels is that of the second label, which it must be positive for: see ``scores.with_second``.
    ``multi_class`` has no effect.
    """
    labels = classlabels_ints, classlabels_strings
    weights = _weights(coefficients, intercepts, *labels)
    x = reshape(X, [1, -1]) if X.ndim == 1 else X
    scores = matmul(x if x.dtype is DType.float32 else cast(x, to=DType.float32), constant(weights.T.copy()))
    if intercepts:
        scores = scores + constant(np.asarray(intercepts, np.float32))
    if len(weights) > 1:
        return labelled(argmax(scores, axis=1, keepdims=0), *labels), transformed(scores, post_transform)
    positions = cast(reshape(scores, [-1]) > 0.0, to=DType.int64)
    if _count(*labels) != 2:
        return positions, transformed(scores, post_transform)
    return labelled(positions, *labels), with_second(scores, post_transform, mirrored=False)


def _count(integers: Any, strings: Any) -> int:
    return len(integers or strings or ())


def _weights(coefficients: Any, intercepts: Any, integers: Any, strings: Any) -> Array:
    """The coefficients as a row for each score. There are as many scores as intercepts, else as labels."""
    weights = np.asarray(coefficients, np.float32)
    rows = len(intercepts) if intercepts else max(_count(integers, strings), 1)
    if not weights.size or weights.size % rows:
        raise TypeMismatch(
            f"{linear_classifier.title}: coefficients must be a row of features for each score",
            given=f"{weights.size} coefficients, {rows} scores",
        )
    return weights.reshape(rows, -1)


@linear_classifier.type
def _(X, *, classlabels_ints, classlabels_strings, coefficients, intercepts, multi_class, post_transform):
    labels = classlabels_ints, classlabels_strings
    problem = check(
        classlabels_ints=classlabels_ints, classlabels_strings=classlabels_strings, coefficients=coefficients,
        intercepts=intercepts, multi_class=multi_class, post_transform=post_transform,
    )  # fmt: skip
    if problem:
        raise TypeMismatch(f"{linear_classifier.title}: {problem}")
    check_numbers(linear_classifier.title, "X", X, most_axes=2)
    weights = _weights(coefficients, intercepts, *labels)
    rows = None
    if X.rank is not None:
        rows = X.shape[0] if X.ndim == 2 else 1
        if isinstance(X.shape[-1], int) and X.shape[-1] != weights.shape[1]:
            raise TypeMismatch(f"{linear_classifier.title}: X must have {weights.shape[1]} features", given=repr(X))
    columns = 2 if len(weights) == 1 and _count(*labels) == 2 else len(weights)
    kind = label_dtype(classlabels_strings)
    return TensorType(kind, (rows,)), TensorType(DType.float32, (rows, columns))


@numpy_rule(linear_classifier)
def _(X, *, classlabels_ints, classlabels_strings, coefficients, intercepts, multi_class, post_transform):
    labels = classlabels_ints, classlabels_strings
    weights = _weights(coefficients, intercepts, *labels)
    scores = np.matmul(np.atleast_2d(X).astype(np.float32, copy=False), weights.T)
    if intercepts:
        scores += np.asarray(intercepts, np.float32)
    if len(weights) > 1:
        return labelled_array(scores.argmax(axis=1), *labels), transformed_array(scores, post_transform)
    positions = (scores[:, 0] > 0).astype(np.int64)
    if _count(*labels) != 2:
        return positions, transformed_array(scores, post_transform)
    return labelled_array(positions, *labels), with_second_array(scores, post_transform, mirrored=False)


def check(
    *,
    classlabels_ints: Any,
    classlabels_strings: Any,
    coefficients: Any,
    intercepts: Any,
    post_transform: str,
    **_: Any,
) -> str | None:
    """What the attributes contradict; asked at import."""
    problem = labels_problem(classlabels_ints, classlabels_strings, "class labels") or transform_problem(post_transform)
    if problem:
        return problem
    count = _count(classlabels_ints, classlabels_strings)
    scores = len(intercepts) if intercepts else max(count, 1)
    if not coefficients or len(coefficients) % scores:
        return f"coefficients must be a row for each score, and here are {len(coefficients)} for {scores} scores"
    if count and count != scores and (scores, count) != (1, 2):
        return f"there must be one label for each score, and here are {count} labels for {scores} scores"
    return None


linear_classifier.rule("check", check)
