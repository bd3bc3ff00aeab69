"""Metrics: what is reported beside the loss, as one number made of ops."""

from __future__ import annotations

from collections.abc import Callable

from tenonnx.extend import DType, Value
from tenonnx_standard.casting import cast
from tenonnx_standard.logic import equal
from tenonnx_standard.math import absolute
from tenonnx_standard.reduction import reduce_mean
from tenonnx_standard.selection import argmax

#: A scalar of a prediction and a target.
Metric = Callable[[Value, Value], Value]


def accuracy(prediction: Value, target: Value) -> Value:
    """The share of labels that are the class, along axis 1, of the largest score."""
    found = argmax(prediction, axis=1, keepdims=0)
    return reduce_mean(cast(equal(found, target), to=DType.float32), keepdims=0)  # type: ignore[no-any-return]


def mean_absolute_error(prediction: Value, target: Value) -> Value:
    """The mean distance of prediction and target."""
    return reduce_mean(absolute(prediction - target), keepdims=0)  # type: ignore[no-any-return]


METRICS: dict[str, Metric] = {"accuracy": accuracy, "mean_absolute_error": mean_absolute_error}
