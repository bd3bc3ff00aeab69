"""Losses: what a prediction costs, as one number made of ops."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import numpy as np

from tenonnx.extend import DType, InvalidCall, InvalidFeed, TensorType, Value, constant
from tenonnx_standard.activation import relu
from tenonnx_standard.casting import cast_like
from tenonnx_standard.loss import negative_log_likelihood_loss, softmax_cross_entropy_loss
from tenonnx_standard.math import absolute, exp, log
from tenonnx_standard.reduction import reduce_mean, reduce_sum

Array = np.ndarray[Any, Any]


class Loss(Protocol):
    """A scalar of a prediction and labels.

    ``includes`` names an activation that the loss applies by itself: where a model ends in it, the loss reads what goes
    into it.
    """

    includes: ClassVar[str]

    def __call__(self, prediction: Value, labels: Value) -> Value: ...

    def labels_type(self, prediction: TensorType) -> TensorType:
        """What labels have to be, for a prediction of this type."""
        ...

    def check(self, prediction: TensorType, labels: Array) -> None:
        """Raise ``InvalidFeed`` for labels of the right type with contents that mean nothing."""
        ...


@dataclass(frozen=True)
class _OfClasses:
    """A loss of integer labels, the classes along axis 1 of the prediction.

    ``weights`` has one number for each class; samples labelled ``ignore_index`` count for nothing. ``reduction`` is
    mean (weighted) or sum.
    """

    weights: Sequence[float] | None = None
    ignore_index: int | None = None
    reduction: str = "mean"

    def __post_init__(self) -> None:
        _check_reduction(self.reduction)

    def __call__(self, prediction: Value, labels: Value) -> Value:
        return self.reduced(prediction, labels, self.reduction)

    def reduced(self, prediction: Value, labels: Value, reduction: str) -> Value:
        """The losses of all labels by that ``reduction``, which may be none."""
        raise NotImplementedError

    def _weights(self, prediction: Value) -> Value | None:
        return None if self.weights is None else constant(np.asarray(self.weights), prediction.dtype)

    def labels_type(self, prediction: TensorType) -> TensorType:
        shape = prediction.shape
        if shape is not None and len(shape) < 2:
            raise InvalidCall("a loss of classes reads scores with the classes along axis 1", given=str(prediction))
        return TensorType(DType.int64, None if shape is None else (shape[0], *shape[2:]))

    def check(self, prediction: TensorType, labels: Array) -> None:
        classes = None if prediction.shape is None else prediction.shape[1]
        counted = labels if self.ignore_index is None else labels[labels != self.ignore_index]
        if not counted.size or not isinstance(classes, int):
            return
        least, most = counted.min(), counted.max()
        if least < 0 or most >= classes:
            raise InvalidFeed(
                f"a label must be a class from 0 to {classes - 1}",
                given=f"label {least if least < 0 else most}",
                do="number the classes from 0, or say which label to ignore (ignore_index)",
            )


@dataclass(frozen=True)
class SoftmaxCrossEntropy(_OfClasses):
    """The negative log-likelihood of labels by the softmax of scores, ``NegativeLogLikelihood`` of its logarithm."""

    includes: ClassVar[str] = "Softmax"

    def reduced(self, prediction: Value, labels: Value, reduction: str) -> Value:
        options: Any = {"ignore_index": self.ignore_index, "reduction": reduction}
        loss, _ = softmax_cross_entropy_loss(prediction, labels, self._weights(prediction), **options)
        return loss  # type: ignore[no-any-return]


@dataclass(frozen=True)
class NegativeLogLikelihood(_OfClasses):
    """Minus the logarithm of a probability that the prediction gives to each label.

    ``weights`` has one number for each class; samples labelled ``ignore_index`` count for nothing. ``reduction`` is
    mean (weighted) or sum.
    """

    includes: ClassVar[str] = ""

    def reduced(self, prediction: Value, labels: Value, reduction: str) -> Value:
        options: Any = {"ignore_index": self.ignore_index, "reduction": reduction}
        return negative_log_likelihood_loss(prediction, labels, self._weights(prediction), **options)  # type: ignore[no-any-return]


@dataclass(frozen=True)
class _Elementwise:
    """A loss of every element, their ``reduction`` mean or sum. Labels are of the prediction's type."""

    reduction: str = "mean"
    includes: ClassVar[str] = ""

    def __post_init__(self) -> None:
        _check_reduction(self.reduction)

    def __call__(self, prediction: Value, labels: Value) -> Value:
        reduce = reduce_mean if self.reduction == "mean" else reduce_sum
        return reduce(self.each(prediction, labels), keepdims=0)  # type: ignore[no-any-return]

    def each(self, prediction: Value, labels: Value) -> Value:
        raise NotImplementedError

    def labels_type(self, prediction: TensorType) -> TensorType:
        return prediction

    def check(self, prediction: TensorType, labels: Array) -> None:
        """Any number will do."""


class MeanSquaredError(_Elementwise):
    """The mean of the squared differences."""

    def each(self, prediction: Value, labels: Value) -> Value:
        difference = prediction - labels
        return difference * difference


class MeanAbsoluteError(_Elementwise):
    """The mean of the absolute differences."""

    def each(self, prediction: Value, labels: Value) -> Value:
        return absolute(prediction - labels)  # type: ignore[no-any-return]


class BinaryCrossEntropy(_Elementwise):
    """The cross-entropy of probabilities in the labels by the sigmoid of scores, which is part of the loss."""

    includes: ClassVar[str] = "Sigmoid"

    def each(self, prediction: Value, labels: Value) -> Value:
        return relu(prediction) - prediction * labels + log(exp(-absolute(prediction)) + 1.0)  # type: ignore[no-any-return]

    def check(self, prediction: TensorType, labels: Array) -> None:
        wide = labels.astype(np.float64)
        if np.any((wide < 0) | (wide > 1)):
            raise InvalidFeed(
                "labels of binary cross-entropy must be probabilities from 0 to 1",
                given=f"{wide.min():g} to {wide.max():g}",
            )


@dataclass(frozen=True)
class FunctionLoss:
    """A loss that the user wrote: ``function(prediction, labels)`` gives a scalar. Labels are of type ``labels``, if
    it is None of the prediction's."""

    function: Callable[[Value, Value], Value]
    labels: TensorType | None = None
    includes: ClassVar[str] = ""

    def __call__(self, prediction: Value, labels: Value) -> Value:
        return self.function(prediction, labels)

    def labels_type(self, prediction: TensorType) -> TensorType:
        return prediction if self.labels is None else self.labels

    def check(self, prediction: TensorType, labels: Array) -> None:
        """What the function takes is not known."""


def weighted(loss: Loss, prediction: Value, labels: Value, weights: Value) -> Value:
    """The mean of the losses of samples, the first axis of the prediction, by ``weights``."""
    if isinstance(loss, _OfClasses):
        each = loss.reduced(prediction, labels, "none")
    elif isinstance(loss, _Elementwise):
        each = loss.each(prediction, labels)
    else:
        raise InvalidCall(
            "a loss of one's own weighs samples by itself", given="sample_weights", available=", ".join(LOSSES)
        )
    samples = reduce_mean(each, range(1, each.ndim), keepdims=0) if each.ndim > 1 else each
    share = cast_like(weights, samples)
    return reduce_sum(samples * share, keepdims=0) / reduce_sum(share, keepdims=0)  # type: ignore[no-any-return]


LOSSES: dict[str, Callable[[], Loss]] = {
    "softmax_cross_entropy": SoftmaxCrossEntropy,
    "negative_log_likelihood": NegativeLogLikelihood,
    "mean_squared_error": MeanSquaredError,
    "mean_absolute_error": MeanAbsoluteError,
    "binary_cross_entropy": BinaryCrossEntropy,
}


def _check_reduction(reduction: str) -> None:
    if reduction not in ("mean", "sum"):
        raise InvalidCall("the loss must be one number", given=f"reduction={reduction!r}", available="mean, sum")
