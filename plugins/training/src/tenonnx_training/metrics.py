"""Metrics.

A metric is a function of values, made of ops: the graph computes it for each batch, and its mean over the samples is
reported. Or it is a function of arrays, and is called with all predictions and labels of an epoch.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from tenonnx.extend import DType, InvalidCall, InvalidFeed, Value
from tenonnx_standard.casting import cast
from tenonnx_standard.logic import equal
from tenonnx_standard.loss import softmax_cross_entropy_loss
from tenonnx_standard.math import absolute
from tenonnx_standard.reduction import reduce_max, reduce_sum
from tenonnx_standard.selection import argmax, top_k
from tenonnx_standard.shapes import size, unsqueeze
from tenonnx_training.classes import IGNORED, axis_by_labels, axis_of_classes, beside_numbers, beside_rows, counts, rows

Array = np.ndarray[Any, Any]

#: A function of values that returns a scalar, or a sum and its count; or one of arrays that returns a number.
Metric = Callable[[Any, Any], Any]


@dataclass(frozen=True)
class OfClasses:
    """A metric of class labels.

    ``class_axis`` is the class axis of the prediction; labels equal to ``ignore_index`` are ignored. By default both
    are those of the loss; without a loss -100 is ignored, and the axis follows from the shapes.
    """

    class_axis: int | None = field(default=None, kw_only=True)
    ignore_index: int | None = field(default=None, kw_only=True)

    def with_defaults_of(self, loss: Any, *, scores: bool | None) -> OfClasses:
        """This metric with unset options filled in from a loss.

        ``scores``: whether a prediction of one column has scores rather than probabilities; None without a loss.
        """
        known = {name: getattr(loss, name, None) for name in ("class_axis", "ignore_index")}
        found: dict[str, Any] = {name: value for name, value in known.items() if getattr(self, name) is None}
        if getattr(self, "threshold", 0.0) is None and scores is not None:
            found["threshold"] = 0.0 if scores else 0.5
        return replace(self, **found)

    @property
    def ignored(self) -> int:
        return IGNORED if self.ignore_index is None else self.ignore_index

    def _rows(self, prediction: Value, labels: Value) -> tuple[Value, Value, Value]:
        """Scores with classes along axis 1, labels in the same layout, and a mask of the labels that count."""
        axis = axis_of_classes(prediction.tensor, self.class_axis)
        scores, labels = rows(prediction, axis), beside_rows(labels, prediction, axis)
        return scores, labels, counts(labels, None, self.ignored)


# ----- functions of values --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Accuracy(OfClasses):
    """The share of labels that equal the class with the largest score.

    Without a class axis, the prediction is class 1 above ``threshold``. That is by default 0.5 for probabilities and 0
    for scores, according to the loss, or to numbers outside of 0 to 1. Where labels have several columns, a sample is
    right if all of its columns are, as in scikit-learn.
    """

    threshold: float | None = None
    name = "accuracy"

    def __call__(self, prediction: Any, labels: Any) -> Any:
        if not isinstance(prediction, Value):
            return self._of_arrays(prediction, labels)
        if prediction.ndim != labels.ndim + 1 or prediction.shape[-1] == 1:
            return None  # it is computed from arrays
        scores, labels, counted = self._rows(prediction, labels)
        right = cast(equal(argmax(scores, axis=1, keepdims=0), cast(labels, to=DType.int64)), to=DType.float32)
        return reduce_sum(right * counted, keepdims=0), reduce_sum(counted, keepdims=0)

    def _of_arrays(self, predictions: Array, labels: Array) -> float:
        scores, labels, counted = _scores_and_labels(predictions, labels, self)
        if scores.ndim == 2 and labels.ndim == 1:
            right: Any = scores.argmax(axis=1) == labels
        else:
            agree: Any = (_chosen(scores, self.threshold) == labels.astype(bool)) | ~counted
            right = agree.reshape(len(labels), -1).all(1)
            counted = np.any(counted.reshape(len(labels), -1), axis=1)
        return float(right[counted].mean()) if counted.any() else math.nan


def mean_absolute_error(prediction: Value, labels: Value) -> tuple[Value, Value]:
    """The mean distance of prediction and labels."""
    distance = cast(absolute(prediction - beside_numbers(labels, prediction)), to=DType.float32)
    return reduce_sum(distance, keepdims=0), cast(size(distance), to=DType.float32)


@dataclass(frozen=True)
class TopK(OfClasses):
    """The share of labels that are among the ``k`` classes with the largest scores."""

    k: int = 5

    def __post_init__(self) -> None:
        if not (isinstance(self.k, int) and self.k > 0):
            raise InvalidCall("TopK: k is not a number of classes", given=repr(self.k))

    @property
    def name(self) -> str:
        return f"top_{self.k}"

    def __call__(self, prediction: Value, labels: Value) -> tuple[Value, Value]:
        scores, labels, counted = self._rows(prediction, labels)
        _, found = top_k(scores, [self.k], axis=1)
        hits = cast(equal(found, unsqueeze(cast(labels, to=DType.int64), [1])), to=DType.float32)
        return reduce_sum(reduce_max(hits, [1], keepdims=0) * counted, keepdims=0), reduce_sum(counted, keepdims=0)


@dataclass(frozen=True)
class Perplexity(OfClasses):
    """The exponential of the mean negative log-likelihood of labels by the softmax of scores."""

    ignore_index: int | None = None
    name = "perplexity"
    includes = "Softmax"

    def __call__(self, prediction: Value, labels: Value) -> tuple[Value, Value]:
        scores, labels, counted = self._rows(cast(prediction, to=DType.float32), labels)
        each, _ = softmax_cross_entropy_loss(scores, labels, ignore_index=self.ignored, reduction="none")
        return reduce_sum(each, keepdims=0), reduce_sum(counted, keepdims=0)

    def finish(self, mean: float) -> float:
        return math.exp(min(mean, 700.0))


# ----- functions of arrays --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class F1(OfClasses):
    """The harmonic mean of precision and recall of every class, averaged by ``average``: macro, micro or weighted.

    Without a class axis, the prediction is class 1 above ``threshold`` as in ``Accuracy``, and the result is the F1 of
    that class. Where labels have several columns, each is a class.
    """

    average: str = "macro"
    threshold: float | None = None
    name = "f1"

    def __post_init__(self) -> None:
        if self.average not in ("macro", "micro", "weighted"):
            raise InvalidCall("F1: unknown average", given=repr(self.average), available="macro, micro, weighted")

    def __call__(self, predictions: Array, labels: Array) -> float:
        pairs = list(self._pairs(predictions, labels))
        if not pairs:
            return math.nan
        hits, wrong, missed = (
            np.array([np.sum(count(found, truth)) for found, truth in pairs], float)
            for count in (np.logical_and, lambda a, b: a & ~b, lambda a, b: ~a & b)
        )
        if self.average == "micro":
            hits, wrong, missed = (each.sum(keepdims=True) for each in (hits, wrong, missed))
        scores = 2 * hits / np.maximum(2 * hits + wrong + missed, 1)
        weights = hits + missed if self.average == "weighted" else np.ones(len(scores))
        return float(np.average(scores, weights=weights)) if weights.any() else 0.0

    def _pairs(self, predictions: Array, labels: Array) -> Iterator[tuple[Array, Array]]:
        """For each class, masks of the samples predicted and labeled as that class."""
        scores, labels, counted = _scores_and_labels(predictions, labels, self)
        if scores.ndim == 2 and labels.ndim == 1:
            found, labels = scores.argmax(axis=1)[counted], labels[counted]
            yield from ((found == k, labels == k) for k in np.unique(np.concatenate([labels, found])))
            return
        found, labels = _chosen(scores, self.threshold), labels.astype(bool)
        yield from _columns(found, labels, counted)


@dataclass(frozen=True)
class RocAuc(OfClasses):
    """The area under the ROC curve: the probability that a positive sample has a larger score than a negative one.

    For several classes the mean of one-versus-rest; for two classes that of class 1; for labels of several columns the
    mean of the columns.
    """

    name = "roc_auc"

    def __call__(self, predictions: Array, labels: Array) -> float:
        scores, labels, counted = _scores_and_labels(predictions, labels, self)
        if scores.ndim == 2 and labels.ndim == 1:
            scores, labels = scores[counted], labels[counted]
            classes = range(scores.shape[1]) if scores.shape[1] > 2 else [1]
            columns = [(scores[:, k], labels == k) for k in classes]
        else:
            columns = list(_columns(scores, labels.astype(bool), counted))
        return float(np.mean([_area(column.astype(np.float64), truth) for column, truth in columns]))


def _scores_and_labels(predictions: Array, labels: Array, metric: OfClasses) -> tuple[Array, Array, Array]:
    """Scores, labels and a mask of the labels that count: ``[n, classes]`` and ``[n]``, or equal shapes with labels 0
    and 1.

    Raises ``InvalidFeed`` for labels of any other shape.
    """
    labels = np.asarray(labels)
    axis = axis_by_labels(predictions.shape, labels.shape, metric.class_axis)
    if axis is not None and predictions.shape[axis] > 1:
        scores = np.moveaxis(predictions, axis, -1)
        if scores.shape[:-1] == labels.shape:
            flat = labels.reshape(-1)
            return scores.reshape(len(flat), scores.shape[-1]), flat, flat != metric.ignored
    if predictions.size != labels.size or predictions.shape[:1] != labels.shape[:1]:
        raise InvalidFeed(
            "labels are neither class numbers nor 0 and 1 in the shape of the prediction",
            given=f"predictions {predictions.shape}, labels {labels.shape}",
            do="class_axis=-1 says that the classes lie along the last axis",
        )
    counted = labels != metric.ignored
    if not np.isin(labels[counted], (0, 1)).all():
        raise InvalidFeed(
            "binary labels are not all 0 or 1",
            given=", ".join(map(str, np.unique(labels[counted])[:5])),
        )
    several = predictions.shape == labels.shape and labels.ndim > 1 and labels.shape[-1] > 1
    form = (-1, labels.shape[-1]) if several else (-1,)
    return predictions.reshape(form), labels.reshape(form), counted.reshape(form)


def _chosen(scores: Array, threshold: float | None) -> Array:
    """Mask of scores above a threshold; the default depends on whether they are probabilities."""
    if threshold is None:
        threshold = 0.0 if np.any((scores < 0) | (scores > 1)) else 0.5
    chosen: Array = scores > threshold
    return chosen


def _columns(found: Array, labels: Array, counted: Array) -> Iterator[tuple[Array, Array]]:
    """Predictions and labels that count, by column."""
    width = labels.shape[1] if labels.ndim == 2 else 1
    parts = (each.reshape(-1, width).T for each in (found, labels, counted))
    for one, other, chosen in zip(*parts, strict=True):
        yield one[chosen], other[chosen]


def _area(scores: Array, positive: Array) -> float:
    """The area from the rank sum of the positives, where ties have their mean rank (Mann and Whitney 1947)."""
    hits, others = int(positive.sum()), int((~positive).sum())
    if not hits or not others:
        raise InvalidFeed(
            "ROC AUC is undefined: a class has no positive or no negative samples", given=f"{hits} and {others}"
        )
    _, inverse, counts = np.unique(scores, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(counts) - (counts - 1) / 2)[inverse]
    return float((ranks[positive].sum() - hits * (hits + 1) / 2) / (hits * others))


METRICS: dict[str, Metric] = {
    "accuracy": Accuracy(),
    "top_5": TopK(5),
    "mean_absolute_error": mean_absolute_error,
    "perplexity": Perplexity(),
    "f1": F1(),
    "roc_auc": RocAuc(),
}
