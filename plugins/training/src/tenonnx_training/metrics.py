"""Metrics: what is reported beside the loss, of a prediction and labels.

A metric is a function of values, made of ops: then the graph computes it for each batch, and its mean over the samples
is reported. Or it is a function of arrays: then it is given all predictions and labels of an epoch.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from tenonnx.extend import DType, InvalidCall, InvalidFeed, Value, constant
from tenonnx_standard.casting import cast
from tenonnx_standard.logic import equal, not_
from tenonnx_standard.loss import softmax_cross_entropy_loss
from tenonnx_standard.math import absolute
from tenonnx_standard.reduction import reduce_max, reduce_mean, reduce_sum
from tenonnx_standard.selection import argmax, top_k
from tenonnx_standard.shapes import unsqueeze

Array = np.ndarray[Any, Any]

#: A function of values that gives a scalar, or a sum and how many it is of; or one of arrays that gives a number.
Metric = Callable[[Any, Any], Any]


# ----- made of ops ----------------------------------------------------------------------------------------------------


def accuracy(prediction: Value, labels: Value) -> Value:
    """The share of labels that are the class, along axis 1, of the largest score."""
    found = argmax(prediction, axis=1, keepdims=0)
    return reduce_mean(cast(equal(found, labels), to=DType.float32), keepdims=0)  # type: ignore[no-any-return]


def mean_absolute_error(prediction: Value, labels: Value) -> Value:
    """The mean distance of prediction and labels."""
    return reduce_mean(absolute(prediction - labels), keepdims=0)  # type: ignore[no-any-return]


@dataclass(frozen=True)
class TopK:
    """The share of labels that are among the ``k`` classes, along axis 1, of the largest scores."""

    k: int = 5

    def __post_init__(self) -> None:
        if not (isinstance(self.k, int) and self.k > 0):
            raise InvalidCall("TopK: k must be a number of classes", given=repr(self.k))

    @property
    def name(self) -> str:
        return f"top_{self.k}"

    def __call__(self, prediction: Value, labels: Value) -> Value:
        _, found = top_k(prediction, [self.k], axis=1)
        hits = cast(equal(found, unsqueeze(labels, [1])), to=DType.float32)
        return reduce_mean(reduce_max(hits, [1]), keepdims=0)  # type: ignore[no-any-return]


@dataclass(frozen=True)
class Perplexity:
    """The exponential of the mean negative log-likelihood of labels, by the softmax of scores along axis 1.

    Labels that are ``ignore_index`` count for nothing.
    """

    ignore_index: int = -100
    name = "perplexity"
    includes = "Softmax"

    def __call__(self, prediction: Value, labels: Value) -> tuple[Value, Value]:
        wide = cast(prediction, to=DType.float32)
        each, _ = softmax_cross_entropy_loss(wide, labels, ignore_index=self.ignore_index, reduction="none")
        counted = not_(equal(labels, constant(self.ignore_index, labels.dtype)))
        return reduce_sum(each, keepdims=0), reduce_sum(cast(counted, to=DType.float32), keepdims=0)

    def finish(self, mean: float) -> float:
        return math.exp(min(mean, 700.0))


# ----- of arrays ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class F1:
    """The harmonic mean of precision and recall, of every class that there is, their ``average`` macro, micro or
    weighted by frequency.

    A prediction with several classes along axis 1 stands for that of the largest score. One without is the probability
    of class 1, which it stands for above ``threshold``; then the F1 of that class is given.
    """

    average: str = "macro"
    threshold: float = 0.5
    name = "f1"

    def __post_init__(self) -> None:
        if self.average not in ("macro", "micro", "weighted"):
            raise InvalidCall("F1: no such average", given=repr(self.average), available="macro, micro, weighted")

    def __call__(self, predictions: Array, labels: Array) -> float:
        labels, several = labels.reshape(-1), predictions.ndim > 1 and predictions.shape[1] > 1
        found = predictions.argmax(axis=1) if several else predictions > self.threshold
        found = found.reshape(-1).astype(np.int64)
        classes = np.unique(np.concatenate([labels, found])) if several else np.array([1])
        hits, wrong, missed = (
            np.array([np.sum(mask(found == k, labels == k)) for k in classes], float)
            for mask in (np.logical_and, lambda a, b: a & ~b, lambda a, b: ~a & b)
        )
        if self.average == "micro":
            hits, wrong, missed = (each.sum(keepdims=True) for each in (hits, wrong, missed))
        scores = 2 * hits / np.maximum(2 * hits + wrong + missed, 1)
        weights = hits + missed if self.average == "weighted" else np.ones(len(scores))
        return float(np.average(scores, weights=weights))


@dataclass(frozen=True)
class RocAuc:
    """The area under the curve of hits over false alarms: how probable it is that a sample of the class has a larger
    score than one of the others. Of several classes along axis 1 the mean, of two that of class 1."""

    name = "roc_auc"

    def __call__(self, predictions: Array, labels: Array) -> float:
        scores = predictions.reshape(len(labels), -1).astype(np.float64)
        labels = labels.reshape(-1)
        classes = range(scores.shape[1]) if scores.shape[1] > 2 else [1]
        columns = scores.T if scores.shape[1] > 2 else scores.T[-1:]
        return float(np.mean([_area(column, labels == k) for k, column in zip(classes, columns, strict=True)]))


def _area(scores: Array, positive: Array) -> float:
    """By the ranks of the positives, equal scores having their mean rank (Mann and Whitney 1947)."""
    hits, others = int(positive.sum()), int((~positive).sum())
    if not hits or not others:
        raise InvalidFeed("ROC AUC needs samples inside and outside of each class", given=f"{hits} and {others}")
    _, inverse, counts = np.unique(scores, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(counts) - (counts - 1) / 2)[inverse]
    return float((ranks[positive].sum() - hits * (hits + 1) / 2) / (hits * others))


METRICS: dict[str, Metric] = {
    "accuracy": accuracy,
    "top_5": TopK(5),
    "mean_absolute_error": mean_absolute_error,
    "perplexity": Perplexity(),
    "f1": F1(),
    "roc_auc": RocAuc(),
}
