"""Linear classification and regression."""

from __future__ import annotations

from typing import Any

import numpy as np

from tenonnx.extend import Dim, DType, holds, op
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
from tenonnx_standard.casting import cast
from tenonnx_standard.checking import numpy_rule
from tenonnx_standard.selection import argmax
from tenonnx_standard.shapes import reshape

Array = np.ndarray[Any, Any]


# ----- LinearClassifier -----------------------------------------------------------------------------------------------


@op("LinearClassifier", domain="ai.onnx.ml")
def linear_classifier(
    X,
    *,
    classlabels_ints: list[int] | None = None,
    classlabels_strings: list[str] | None = None,
    coefficients: list[float],
    intercepts: list[float] | None = None,
    multi_class=0,
    post_transform="NONE",
):
    """The label of the maximum of the scores ``X @ coefficients.T + intercepts``, and the transformed scores.

    A single score for two labels is that of the second label, which is chosen if the score is positive: see
    ``scores.with_second``. ``multi_class`` has no effect.
    """
    labels = classlabels_ints, classlabels_strings
    weights = _weights(coefficients, intercepts, *labels)
    scores = weighted(float_rows(X), weights, intercepts)
    if len(weights) > 1:
        return labeled(argmax(scores, axis=1, keepdims=0), *labels), transformed(scores, post_transform)
    positions = cast(reshape(scores, [-1]) > 0.0, to=DType.int64)
    if _count(*labels) != 2:
        return positions, transformed(scores, post_transform)
    return labeled(positions, *labels), with_second(scores, post_transform, mirrored=False)


def _count(integers: Any, strings: Any) -> int:
    return len(integers or strings or ())


def _weights(coefficients: Any, intercepts: Any, integers: Any, strings: Any) -> Array:
    """The coefficients as a row per score. There are as many scores as intercepts, or else as labels."""
    return floats(coefficients).reshape(len(intercepts) if intercepts else max(_count(integers, strings), 1), -1)


@numpy_rule(linear_classifier)
def linear_classifier_numpy(
    X, *, classlabels_ints, classlabels_strings, coefficients, intercepts, multi_class, post_transform
):
    labels = classlabels_ints, classlabels_strings
    weights = _weights(coefficients, intercepts, *labels)
    scores = weighted_array(float_rows_of_array(X), weights, intercepts)
    if len(weights) > 1:
        return labeled_array(scores.argmax(axis=1), *labels), transformed_array(scores, post_transform)
    positions = (scores[:, 0] > 0).astype(np.int64)
    if _count(*labels) != 2:
        return positions, transformed_array(scores, post_transform)
    return labeled_array(positions, *labels), with_second_array(scores, post_transform, mirrored=False)


def check(
    *,
    classlabels_ints: Any,
    classlabels_strings: Any,
    coefficients: Any,
    intercepts: Any,
    post_transform: str,
    **_: Any,
) -> str | None:
    """Return the first problem of the attributes, or None."""
    problem = labels_problem(classlabels_ints, classlabels_strings, "classlabels_ints and classlabels_strings")
    problem = problem or transform_problem(post_transform)
    if problem:
        return problem
    count = _count(classlabels_ints, classlabels_strings)
    scores = len(intercepts) if intercepts else max(count, 1)
    if not coefficients or len(coefficients) % scores:
        return f"coefficients are not one row for each score: {len(coefficients)} for {scores} scores"
    if count and count != scores and (scores, count) != (1, 2):
        return f"number of labels differs from that of scores: {count} and {scores}"
    return None


def _fits(
    features: Dim, coefficients: Any, intercepts: Any, classlabels_ints: Any, classlabels_strings: Any
) -> str | None:
    return fits(features, _weights(coefficients, intercepts, classlabels_ints, classlabels_strings).shape[1])


linear_classifier.requires(holds(check), ROWS, holds(_fits))


# ----- LinearRegressor ------------------------------------------------------------------------------------------------


@op("LinearRegressor", domain="ai.onnx.ml")
def linear_regressor(
    X,
    *,
    coefficients: list[float] | None = None,
    intercepts: list[float] | None = None,
    post_transform="NONE",
    targets=1,
):
    """``X @ coefficients.T + intercepts`` with a row of coefficients per target, then a transform."""
    weights = floats(coefficients).reshape(targets, -1)
    return transformed(weighted(float_rows(X), weights, intercepts), post_transform)


@numpy_rule(linear_regressor)
def linear_regressor_numpy(X, *, coefficients, intercepts, post_transform, targets):
    weights = floats(coefficients).reshape(targets, -1)
    return transformed_array(weighted_array(float_rows_of_array(X), weights, intercepts), post_transform)


def check_regressor(*, coefficients: Any, intercepts: Any, post_transform: str, targets: int) -> str | None:
    """Return the first problem of the attributes, or None."""
    if targets < 1:
        return f"targets is not positive: {targets}"
    if not coefficients or len(coefficients) % targets:
        return f"coefficients are not one row for each target: {len(coefficients or ())} for {targets}"
    if intercepts and len(intercepts) != targets:
        return f"number of intercepts differs from that of targets: {len(intercepts)} and {targets}"
    return transform_problem(post_transform)


linear_regressor.requires(
    holds(check_regressor),
    ROWS,
    holds(lambda features, coefficients, targets: fits(features, len(coefficients) // targets)),
)
