"""Losses of embeddings by whether samples share a label."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from tenonnx.extend import DType, InvalidCall, InvalidFeed, TensorType, Value
from tenonnx_standard.activation import relu
from tenonnx_standard.axis_activation import log_softmax
from tenonnx_standard.casting import cast, cast_like
from tenonnx_standard.cumulative import cumsum
from tenonnx_standard.logic import equal, where
from tenonnx_standard.math import maximum, sqrt
from tenonnx_standard.reduction import reduce_sum
from tenonnx_standard.shapes import transpose, unsqueeze

Array = np.ndarray[Any, Any]


class _OfEmbeddings:
    """A loss of embeddings ``[batch, features]`` and an integer label for each sample."""

    name: ClassVar[str]
    includes: ClassVar[str] = ""

    def labels_type(self, prediction: TensorType) -> TensorType:
        if prediction.shape is not None and len(prediction.shape) != 2:
            raise InvalidCall(f"{self.name}: embeddings are not of shape [batch, features]", given=str(prediction))
        return TensorType(DType.int64, None if prediction.shape is None else prediction.shape[:1])

    def check(self, prediction: TensorType, labels: Array) -> None:
        if labels.ndim != 1:
            raise InvalidFeed(f"{self.name}: labels are not one for each sample", given=f"labels {list(labels.shape)}")


@dataclass(frozen=True)
class Triplet(_OfEmbeddings):
    """The mean of ``relu(|a - p| - |a - n| + margin)`` over all triplets of a batch (Schroff et al. 2015).

    An anchor a and a positive p share a label, a negative n has another. Distances are those of
    ``TripletMarginLoss`` of PyTorch. A batch without a triplet counts as zero.
    """

    margin: float = 1.0
    name: ClassVar[str] = "triplet"

    def __post_init__(self) -> None:
        if not (isinstance(self.margin, int | float) and self.margin > 0):
            raise InvalidCall("Triplet: margin is not a positive number", given=repr(self.margin)[:80])

    def __call__(self, prediction: Value, labels: Value) -> Value:
        differences = unsqueeze(prediction, [1]) - unsqueeze(prediction, [0]) + 1e-6  # as PyTorch
        distances = sqrt(reduce_sum(differences * differences, [2], keepdims=0))
        positive, negative = _pairs(labels, distances)
        costs = relu(unsqueeze(distances, [2]) - unsqueeze(distances, [1]) + self.margin)
        return _mean(costs, unsqueeze(positive, [2]) * unsqueeze(negative, [1]))


@dataclass(frozen=True)
class InfoNCE(_OfEmbeddings):
    """The cross-entropy of picking a sample of the same label among all others, by cosine similarity.

    Similarities are divided by ``temperature``. Two samples for each label make this NT-Xent of SimCLR (Chen et al.
    2020); more are averaged over all positive pairs. A batch without a pair counts as zero.
    """

    temperature: float = 0.1
    name: ClassVar[str] = "info_nce"

    def __post_init__(self) -> None:
        if not (isinstance(self.temperature, int | float) and self.temperature > 0):
            raise InvalidCall("InfoNCE: temperature is not a positive number", given=repr(self.temperature)[:80])

    def __call__(self, prediction: Value, labels: Value) -> Value:
        length = sqrt(maximum(reduce_sum(prediction * prediction, [1], keepdims=1), 1e-12))
        unit = prediction / length
        similarity = unit @ transpose(unit, perm=[1, 0]) / self.temperature
        positive, _ = _pairs(labels, similarity)
        others = where(_is_diagonal(labels), cast_like(-1e9, similarity), similarity)
        return _mean(-log_softmax(others, axis=1), positive)


def _pairs(labels: Value, like: Value) -> tuple[Value, Value]:
    """Masks of the pairs of distinct samples with the same label, and of the pairs with different labels."""
    same = cast_like(equal(unsqueeze(labels, [1]), unsqueeze(labels, [0])), like)
    itself = cast_like(_is_diagonal(labels), like)
    return same - itself, 1.0 - same


def _is_diagonal(labels: Value) -> Value:
    places = cumsum(cast(equal(labels, labels), to=DType.int64), 0)
    return equal(unsqueeze(places, [1]), unsqueeze(places, [0]))  # type: ignore[no-any-return]


def _mean(costs: Value, mask: Value) -> Value:
    """The mean of the elements that a mask selects, zero for none."""
    total, count = reduce_sum(costs * mask, keepdims=0), reduce_sum(mask, keepdims=0)
    return total / maximum(count, 1.0)  # type: ignore[no-any-return]
