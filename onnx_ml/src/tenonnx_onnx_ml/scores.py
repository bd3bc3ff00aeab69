"""Scores of classifiers and ensembles: binary cases, post transforms, labels."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from tenonnx.extend import DType, TypeMismatch, Value, constant
from tenonnx_standard.activation import sigmoid
from tenonnx_standard.axis_activation import softmax
from tenonnx_standard.joining import concat
from tenonnx_standard.logic import and_, greater, less, where
from tenonnx_standard.math import exp, log, sqrt
from tenonnx_standard.reduction import reduce_max, reduce_sum
from tenonnx_standard.slicing import gather

Array = np.ndarray[Any, Any]

TRANSFORMS = ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT")

#: Scores closer to zero than this count as zero for SOFTMAX_ZERO.
_TINY = 1e-7

#: The constant of Winitzki's approximation of the inverse error function (2008, "A handy approximation").
_WINITZKI = 0.147


def transform_problem(post_transform: str) -> str | None:
    """Reason why the name of a post transform is invalid, or None."""
    if post_transform in TRANSFORMS:
        return None
    return f"post_transform is not one of {', '.join(TRANSFORMS)}: {post_transform!r}"


def labels_problem(integers: Sequence[int] | None, strings: Sequence[str] | None, names: str) -> str | None:
    """Reason why labels, integers or strings, are invalid, or None."""
    return f"both integers and strings are given: {names}" if integers and strings else None


# ----- values ---------------------------------------------------------------------------------------------------------


def transformed(scores: Value, post_transform: str) -> Value:
    """Scores [rows, classes] after a post transform; only PROBIT transforms a single score, as in onnxruntime."""
    if post_transform == "PROBIT":
        return _probit(scores)
    if post_transform == "NONE" or scores.shape[1] == 1:
        return scores
    if post_transform == "LOGISTIC":
        return sigmoid(scores)
    return softmax(scores, axis=1) if post_transform == "SOFTMAX" else _softmax_zero(scores)


def with_second(positive: Value, post_transform: str, *, mirrored: bool) -> Value:
    """The scores of two classes from the score of the second one, after the post transform.

    The first score is 1 minus the second, or its negative if ``mirrored`` and for LOGISTIC. SOFTMAX and SOFTMAX_ZERO do
    not transform the pair, as in onnxruntime.
    """
    if post_transform == "LOGISTIC":
        return sigmoid(concat(-positive, positive, axis=1))
    pair = concat(-positive if mirrored else 1.0 - positive, positive, axis=1)
    return _probit(pair) if post_transform == "PROBIT" else pair


def _softmax_zero(scores: Value) -> Value:
    """Softmax over non-zero elements; zeros stay zero."""
    e = where(_is_zero(scores), 0.0, exp(scores - reduce_max(scores, [1])))
    total = reduce_sum(e, [1])
    return where(total > 0.0, e / where(total > 0.0, total, 1.0), 0.5)


def _is_zero(scores: Value) -> Value:
    return and_(less(scores, _TINY), greater(scores, -_TINY))


def _probit(p: Value) -> Value:
    """The quantile function of the normal distribution, approximated."""
    x = p * 2.0 - 1.0
    logarithm = log((1.0 - x) * (1.0 + x))
    v = logarithm * 0.5 + 2.0 / (math.pi * _WINITZKI)
    size = sqrt(sqrt(v * v - logarithm / _WINITZKI) - v) * math.sqrt(2)
    return where(x < 0.0, -size, size)


def labeled(positions: Value, integers: Sequence[int] | None, strings: Sequence[str] | None) -> Value:
    """The labels at ``positions``; the positions themselves if there are no labels."""
    if strings:
        return gather(constant(np.asarray(strings, dtype=object), DType.string), positions)
    return gather(constant(np.asarray(integers, dtype=np.int64)), positions) if integers else positions


def label_dtype(strings: Sequence[str] | None) -> DType:
    return DType.string if strings else DType.int64


def check_numbers(title: str, name: str, x: Value, *, most_axes: int | None = None) -> None:
    """Raise ``TypeMismatch`` unless ``x`` is numeric and has one to ``most_axes`` axes."""
    if not x.dtype.is_float and not x.dtype.is_integer:
        raise TypeMismatch(f'{title}: "{name}" does not hold numbers', given=repr(x))
    if most_axes is not None and x.rank is not None and not 1 <= x.ndim <= most_axes:
        raise TypeMismatch(f'{title}: "{name}" is not a matrix of rows and features', given=repr(x))


# ----- arrays ---------------------------------------------------------------------------------------------------------


@np.errstate(all="ignore")
def transformed_array(scores: Array, post_transform: str) -> Array:
    """``transformed`` for an array."""
    if post_transform == "PROBIT":
        return _probit_array(scores)
    if post_transform == "NONE" or scores.shape[1] == 1:
        return scores
    if post_transform == "LOGISTIC":
        return _sigmoid_array(scores)
    e = np.exp(scores - scores.max(axis=1, keepdims=True))
    if post_transform == "SOFTMAX":
        return e / e.sum(axis=1, keepdims=True)
    e[np.abs(scores) < _TINY] = 0
    total = e.sum(axis=1, keepdims=True)
    return np.where(total > 0, e / np.where(total > 0, total, 1), e.dtype.type(0.5))


@np.errstate(all="ignore")
def with_second_array(positive: Array, post_transform: str, *, mirrored: bool) -> Array:
    """``with_second`` for an array."""
    if post_transform == "LOGISTIC":
        return _sigmoid_array(np.concatenate([-positive, positive], axis=1))
    pair = np.concatenate([-positive if mirrored else 1 - positive, positive], axis=1)
    return _probit_array(pair) if post_transform == "PROBIT" else pair


def _sigmoid_array(x: Array) -> Array:
    return 1 / (1 + np.exp(-x))


def _probit_array(p: Array) -> Array:
    x = p * 2 - 1
    logarithm = np.log((1 - x) * (1 + x))
    v = logarithm * p.dtype.type(0.5) + p.dtype.type(2 / (math.pi * _WINITZKI))
    size = np.sqrt(np.sqrt(v * v - logarithm / p.dtype.type(_WINITZKI)) - v) * p.dtype.type(math.sqrt(2))
    return np.where(x < 0, -size, size)


def labeled_array(positions: Array, integers: Sequence[int] | None, strings: Sequence[str] | None) -> Array:
    """``labeled`` for an array."""
    if strings:
        return np.asarray(strings, dtype=object)[positions]
    return np.asarray(integers, dtype=np.int64)[positions] if integers else positions.astype(np.int64)
