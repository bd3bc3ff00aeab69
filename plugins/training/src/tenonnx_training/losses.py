"""Loss functions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol

import numpy as np

from tenonnx.extend import DType, InvalidCall, InvalidFeed, TensorType, Value, constant
from tenonnx_standard.activation import relu, sigmoid
from tenonnx_standard.axis_activation import log_softmax
from tenonnx_standard.casting import cast, cast_like
from tenonnx_standard.logic import equal, greater, where
from tenonnx_standard.loss import negative_log_likelihood_loss, softmax_cross_entropy_loss
from tenonnx_standard.math import absolute, exp, log, minimum
from tenonnx_standard.reduction import reduce_mean, reduce_sum
from tenonnx_standard.shapes import reshape, size
from tenonnx_training.classes import (
    IGNORED,
    axis_by_labels,
    axis_of_classes,
    beside_numbers,
    beside_rows,
    check_classes,
    counts,
    is_column,
    rows,
    spread,
    wide,
    without,
)
from tenonnx_training.ctc import CTC
from tenonnx_training.embedding_losses import InfoNCE, Triplet

Array = np.ndarray[Any, Any]


class Loss(Protocol):
    """A scalar function of a prediction and labels.

    ``includes`` names an activation that the loss contains: if the model ends in it, the loss reads its input.
    """

    includes: ClassVar[str]

    def __call__(self, prediction: Value, labels: Value) -> Value: ...

    def labels_type(self, prediction: TensorType) -> TensorType:
        """Type of the labels for a prediction of this type."""
        ...

    def check(self, prediction: TensorType, labels: Array) -> None:
        """Raise ``InvalidFeed`` for labels of the right type with invalid contents."""
        ...


@dataclass(frozen=True)
class _OfClasses:
    """A loss of integer class labels.

    ``weights`` has one number for each class; labels equal to ``ignore_index`` are ignored. ``reduction`` is mean
    (weighted) or sum. ``class_axis`` is the class axis of the prediction: by default 1, as in PyTorch, or the last axis
    where it is the only one of known size; pass -1 for ``[batch, length, classes]``.
    """

    weights: Sequence[float] | None = None
    ignore_index: int | None = None
    reduction: str = "mean"
    class_axis: int | None = None

    def __post_init__(self) -> None:
        _check_reduction(self.reduction)

    def __call__(self, prediction: Value, labels: Value) -> Value:
        return self.batch(prediction, labels)[0]

    def batch(self, prediction: Value, labels: Value, weights: Value | None = None) -> tuple[Value, Value | None]:
        """The loss of a batch, and its weight in a mean over batches, None for a sum."""
        axis = axis_of_classes(prediction.tensor, self.class_axis)
        share = None if weights is None else beside_rows(spread(weights, labels), prediction, axis)
        labels, scores = beside_rows(labels, prediction, axis), rows(prediction, axis)
        if share is None and self.weights is None and self.ignore_index is None:
            loss = self.reduced(scores, labels, self.reduction)
            return loss, None if self.reduction == "sum" else cast(size(labels), to=DType.float32)
        each = wide(self.reduced(scores, labels, "none"))
        count = counts(labels, self.weights, self.ignore_index)
        return weighted_mean(each, share, count if share is None else count * cast_like(share, count), self.reduction)

    def reduced(self, prediction: Value, labels: Value, reduction: str) -> Value:
        """The losses of all labels, reduced by ``reduction``, which may be none."""
        raise NotImplementedError

    def _weights(self, prediction: Value) -> Value | None:
        return None if self.weights is None else constant(np.asarray(self.weights), prediction.dtype)

    def labels_type(self, prediction: TensorType) -> TensorType:
        axis = axis_of_classes(prediction, self.class_axis)
        return TensorType(DType.int64, None if prediction.shape is None else without(prediction.shape, axis))

    def check(self, prediction: TensorType, labels: Array) -> None:
        classes = None if prediction.shape is None else prediction.shape[axis_of_classes(prediction, self.class_axis)]
        said = f"tt.{type(self).__name__}(ignore_index={IGNORED}) / --ignore-index"
        check_classes(labels, classes, self.ignore_index, said)


@dataclass(frozen=True)
class SoftmaxCrossEntropy(_OfClasses):
    """The negative log-likelihood of labels by the softmax of scores.

    ``label_smoothing`` s spreads that share of a label evenly over all classes, weighted as in PyTorch: ``(1 - s) *
    w[y] * -log p[y] + s / classes * sum(w * -log p)``, with a mean weighted by ``w[y]``.
    """

    name: ClassVar[str] = "softmax_cross_entropy"
    includes: ClassVar[str] = "Softmax"
    label_smoothing: float = field(default=0.0, kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.label_smoothing, int | float) or not 0 <= self.label_smoothing <= 1:
            raise InvalidCall("label smoothing is not between 0 and 1", given=repr(self.label_smoothing)[:80])

    def reduced(self, prediction: Value, labels: Value, reduction: str) -> Value:
        weights = self._weights(prediction)
        options: Any = {"ignore_index": self.ignore_index, "reduction": reduction}
        loss, _ = softmax_cross_entropy_loss(prediction, labels, weights, **options)
        if not self.label_smoothing:
            return loss  # type: ignore[no-any-return]
        spread_out = -log_softmax(prediction, axis=1)
        if weights is not None:
            spread_out = spread_out * reshape(weights, [1, -1, *[1] * (prediction.ndim - 2)])
        each = reduce_mean(spread_out, [1], keepdims=0)
        if self.ignore_index is not None:
            each = where(equal(labels, cast_like(self.ignore_index, labels)), cast_like(0.0, each), each)
        if reduction != "none":  # none of the two differs without weights and ignored labels
            each = (reduce_mean if reduction == "mean" else reduce_sum)(each, keepdims=0)
        return loss * (1.0 - self.label_smoothing) + each * self.label_smoothing  # type: ignore[no-any-return]


@dataclass(frozen=True)
class NegativeLogLikelihood(_OfClasses):
    """The negative log-likelihood of labels, where the prediction has log-probabilities.

    ``weights`` has one number for each class; labels equal to ``ignore_index`` are ignored. ``reduction`` is mean
    (weighted) or sum. ``class_axis`` is as in ``SoftmaxCrossEntropy``. A loss below zero raises ``InvalidFeed``, since
    the prediction is then not log-probabilities.
    """

    name: ClassVar[str] = "negative_log_likelihood"
    includes: ClassVar[str] = ""

    def reduced(self, prediction: Value, labels: Value, reduction: str) -> Value:
        options: Any = {"ignore_index": self.ignore_index, "reduction": reduction}
        return negative_log_likelihood_loss(prediction, labels, self._weights(prediction), **options)  # type: ignore[no-any-return]

    def check_loss(self, loss: float) -> None:
        """Raise ``InvalidFeed`` for a negative loss, which log-probabilities never have."""
        if loss < -1e-4 and all(weight >= 0 for weight in self.weights or ()):
            raise InvalidFeed(
                "negative_log_likelihood got numbers above 0, so they are not log-probabilities",
                given=f"a loss of {loss:.4g}",
                do="softmax_cross_entropy reads scores, and the probabilities that a Softmax gives",
            )


@dataclass(frozen=True)
class _Elementwise:
    """A loss of every element, reduced by mean or sum. Labels have the type of the prediction."""

    reduction: str = "mean"
    includes: ClassVar[str] = ""

    def __post_init__(self) -> None:
        _check_reduction(self.reduction)

    def __call__(self, prediction: Value, labels: Value) -> Value:
        return self.batch(prediction, labels)[0]

    def batch(self, prediction: Value, labels: Value, weights: Value | None = None) -> tuple[Value, Value | None]:
        """The loss of a batch, and its weight in a mean over batches, None for a sum."""
        each = self.each(prediction, beside_numbers(labels, prediction))
        if weights is not None:
            share = spread(weights, each)
            return weighted_mean(wide(each), share, cast(share, to=DType.float32), self.reduction)
        if self.reduction == "sum":
            return reduce_sum(each, keepdims=0), None
        return reduce_mean(each, keepdims=0), cast(size(each), to=DType.float32)

    def each(self, prediction: Value, labels: Value) -> Value:
        raise NotImplementedError

    def labels_type(self, prediction: TensorType) -> TensorType:
        return prediction

    def labels_given(self, prediction: TensorType, labels: Array) -> Array:
        """Labels for the comparison: integers and booleans as floats, a vector as a column."""
        if is_column(prediction, labels.ndim):
            labels = labels[..., None]
        return labels.astype(prediction.dtype.numpy) if labels.dtype.kind in "biu" else labels

    def check(self, prediction: TensorType, labels: Array) -> None:
        """Accept any number."""


class MeanSquaredError(_Elementwise):
    """The mean of the squared differences."""

    name: ClassVar[str] = "mean_squared_error"

    def each(self, prediction: Value, labels: Value) -> Value:
        difference = prediction - labels
        return difference * difference


class MeanAbsoluteError(_Elementwise):
    """The mean of the absolute differences."""

    name: ClassVar[str] = "mean_absolute_error"

    def each(self, prediction: Value, labels: Value) -> Value:
        return absolute(prediction - labels)  # type: ignore[no-any-return]


@dataclass(frozen=True, init=False)
class Huber(_Elementwise):
    """Half the squared difference, linear beyond ``delta`` (Huber 1964), as PyTorch's ``HuberLoss``."""

    delta: float = 1.0
    name: ClassVar[str] = "huber"

    def __init__(self, delta: float = 1.0, reduction: str = "mean") -> None:
        if not (isinstance(delta, int | float) and delta > 0):
            raise InvalidCall("Huber: delta is not a positive number", given=repr(delta)[:80])
        object.__setattr__(self, "delta", delta)
        object.__setattr__(self, "reduction", reduction)
        self.__post_init__()

    def each(self, prediction: Value, labels: Value) -> Value:
        distance = absolute(prediction - labels)
        near = minimum(distance, self.delta)  # differentiable where the two parts meet
        return near * (distance - near * 0.5)  # type: ignore[no-any-return]


class KullbackLeibler(_Elementwise):
    """The divergence of a softmax of scores from the probabilities in the labels, along the last axis, per sample.

    With ``mean`` this is PyTorch's ``KLDivLoss(reduction="batchmean")`` on ``[batch, classes]``.
    """

    name: ClassVar[str] = "kl_divergence"
    includes: ClassVar[str] = "Softmax"

    def each(self, prediction: Value, labels: Value) -> Value:
        known = log(where(greater(labels, 0.0), labels, 1.0))
        return reduce_sum(labels * (known - log_softmax(prediction, axis=-1)), [-1], keepdims=0)  # type: ignore[no-any-return]

    def check(self, prediction: TensorType, labels: Array) -> None:
        if labels.size and (labels.min() < 0 or np.abs(labels.sum(-1) - 1).max() > 1e-3):
            raise InvalidFeed(
                "labels of kl_divergence are not probabilities along the last axis",
                given=f"numbers from {labels.min():g} to {labels.max():g}",
                do="softmax_cross_entropy takes class numbers",
            )


@dataclass(frozen=True, init=False)
class Focal(_Elementwise):
    """Binary cross-entropy that weighs easy elements less, by ``(1 - p) ** gamma`` (Lin et al. 2017).

    The loss includes the sigmoid of scores. ``alpha`` is the weight of labels 1, and ``1 - alpha`` that of labels 0;
    None weighs both alike. As torchvision's ``sigmoid_focal_loss``.
    """

    gamma: float = 2.0
    alpha: float | None = 0.25
    name: ClassVar[str] = "focal"
    includes: ClassVar[str] = "Sigmoid"

    def __init__(self, gamma: float = 2.0, alpha: float | None = 0.25, reduction: str = "mean") -> None:
        if not (isinstance(gamma, int | float) and gamma >= 0):
            raise InvalidCall("Focal: gamma is negative or NaN", given=repr(gamma)[:80])
        if alpha is not None and not 0 <= alpha <= 1:
            raise InvalidCall("Focal: alpha is not between 0 and 1", given=repr(alpha)[:80])
        for name, value in (("gamma", gamma), ("alpha", alpha), ("reduction", reduction)):
            object.__setattr__(self, name, value)
        self.__post_init__()

    def each(self, prediction: Value, labels: Value) -> Value:
        cost = BinaryCrossEntropy().each(prediction, labels)
        probability = sigmoid(prediction)
        missing = probability * (1.0 - labels) + (1.0 - probability) * labels
        cost = cost * missing**self.gamma
        if self.alpha is not None:
            cost = cost * (labels * self.alpha + (1.0 - labels) * (1.0 - self.alpha))
        return cost  # type: ignore[no-any-return]

    def check(self, prediction: TensorType, labels: Array) -> None:
        BinaryCrossEntropy().check(prediction, labels)


class Dice(_Elementwise):
    """One minus the Dice overlap of each sample: ``1 - (2 sum(p y) + 1) / (sum(p) + sum(y) + 1)``.

    The loss includes the sigmoid of scores; sums are over all axes but the first (Milletari et al. 2016).
    """

    name: ClassVar[str] = "dice"
    includes: ClassVar[str] = "Sigmoid"

    def each(self, prediction: Value, labels: Value) -> Value:
        probability = sigmoid(prediction)
        axes = list(range(1, prediction.ndim))
        both, one, other = (reduce_sum(x, axes, keepdims=0) for x in (probability * labels, probability, labels))
        return 1.0 - (both * 2.0 + 1.0) / (one + other + 1.0)  # type: ignore[no-any-return]

    def check(self, prediction: TensorType, labels: Array) -> None:
        BinaryCrossEntropy().check(prediction, labels)


class BinaryCrossEntropy(_Elementwise):
    """The cross-entropy of the probabilities in the labels by the sigmoid of scores, which the loss includes."""

    name: ClassVar[str] = "binary_cross_entropy"
    includes: ClassVar[str] = "Sigmoid"

    def each(self, prediction: Value, labels: Value) -> Value:
        return relu(prediction) - prediction * labels + log(exp(-absolute(prediction)) + 1.0)  # type: ignore[no-any-return]

    def check(self, prediction: TensorType, labels: Array) -> None:
        numbers = labels.astype(np.float64)
        if np.any((numbers < 0) | (numbers > 1)):
            raise InvalidFeed(
                "labels of binary cross-entropy are outside of 0 to 1",
                given=f"{numbers.min():g} to {numbers.max():g}",
            )


@dataclass(frozen=True)
class FunctionLoss:
    """A user-defined loss: ``function(prediction, labels)`` returns a scalar, averaged over batches by samples.

    ``labels`` is the type of the labels, None for the type of the prediction.
    """

    function: Callable[[Value, Value], Value]
    labels: TensorType | None = None
    includes: ClassVar[str] = ""

    def __call__(self, prediction: Value, labels: Value) -> Value:
        return self.function(prediction, labels)

    def labels_type(self, prediction: TensorType) -> TensorType:
        return prediction if self.labels is None else self.labels

    def check(self, prediction: TensorType, labels: Array) -> None:
        """Accept any labels: the requirements of the function are not known."""


class NoLoss:
    """Placeholder for a loss: it only determines the type of the labels, from the first labels."""

    includes: ClassVar[str] = ""

    def __init__(self, labels: Array, ignored: Sequence[int], class_axis: int | None) -> None:
        self._kind, self._sizes = TensorType(DType.of(labels.dtype)), labels.shape
        self._ignored = ignored
        self._said, self.class_axis = class_axis, class_axis

    def __call__(self, prediction: Value, labels: Value) -> Value:
        return reduce_sum(prediction * 0.0, keepdims=0)  # type: ignore[no-any-return]

    def labels_type(self, prediction: TensorType) -> TensorType:
        if prediction.shape is None or not self._sizes:
            return self._kind
        self.class_axis = axis_by_labels(prediction.shape, self._sizes, self._said)
        if self._of_classes(prediction):
            assert self.class_axis is not None
            return TensorType(DType.int64, without(prediction.shape, self.class_axis))
        fixed = [n if isinstance(dim, int) else None for n, dim in zip(self._sizes, prediction.shape, strict=False)]
        open_ones = [None] * (len(self._sizes) - len(fixed))
        return self._kind.with_shape((prediction.shape[0], *fixed[1:], *open_ones))

    def labels_given(self, prediction: TensorType, labels: Array) -> Array:
        return labels.astype(np.int64) if self._of_classes(prediction) and labels.dtype.kind in "biu" else labels

    def check(self, prediction: TensorType, labels: Array) -> None:
        if self._of_classes(prediction):
            assert prediction.shape is not None
            assert self.class_axis is not None
            counted = labels[~np.isin(labels, self._ignored)]
            said = 'tt.Accuracy(ignore_index=...), "--ignore-index"'
            check_classes(counted, prediction.shape[self.class_axis], None, said)

    def _of_classes(self, prediction: TensorType) -> bool:
        """Whether labels are class numbers of several classes."""
        several = self.class_axis is not None and (prediction.shape or (1,))[self.class_axis] != 1
        return several and self._kind.dtype.is_integer


def weighted_mean(each: Value, share: Value | None, count: Value, reduction: str) -> tuple[Value, Value | None]:
    """The sum of losses times ``share``, or its quotient by ``count``, which is zero where ``count`` is zero."""
    total = reduce_sum(each if share is None else each * cast_like(share, each), keepdims=0)
    if reduction == "sum":
        return total, None
    number = reduce_sum(count, keepdims=0)
    divisor = where(equal(number, constant(np.float32(0))), constant(np.float32(1)), number)
    return total / cast_like(divisor, total), number


_NAMED = (
    SoftmaxCrossEntropy,
    NegativeLogLikelihood,
    MeanSquaredError,
    MeanAbsoluteError,
    Huber,
    BinaryCrossEntropy,
    Focal,
    Dice,
    KullbackLeibler,
    Triplet,
    InfoNCE,
    CTC,
)

LOSSES: dict[str, Callable[..., Loss]] = {loss.name: loss for loss in _NAMED}


def _check_reduction(reduction: str) -> None:
    if reduction not in ("mean", "sum"):
        raise InvalidCall("the loss is not one number", given=f"reduction={reduction!r}", available="mean, sum")
