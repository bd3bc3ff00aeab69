"""Metrics: what is reported beside the loss, as one number made of ops."""

from __future__ import annotations

from collections.abc import Callable

from tenonnx.extend import DType, Value
from tenonnx_standard.casting import cast
from tenonnx_standard.logic import equal
from tenonnx_standard.math import absolute
from tenonnx_standard.reduction import reduce_mean
from tenonnx_standard.selection import argmax

#: A scalar of a prediction and labels.
Metric = Callable[[Value, Value], Value]


def accuracy(prediction: Value, labels: Value) -> Value:
    """The share of labels that are the class, along axis 1, of the largest score."""
    found = argmax(prediction, axis=1, keepdims=0)
    return reduce_mean(cast(equal(found, labels), to=DType.float32), keepdims=0)  # type: ignore[no-any-return]


def mean_absolute_error(prediction: Value, labels: Value) -> Value:
    """The mean distance of prediction and labels."""
    return reduce_mean(absolute(prediction - labels), keepdims=0)  # type: ignore[no-any-return]


METRICS: dict[str, Metric] = {"accuracy": accuracy, "mean_absolute_error": mean_absolute_error}
