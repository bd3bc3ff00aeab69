"""Class scores of losses and metrics: the class axis, ignored labels and weights of labels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tenonnx.extend import DType, InvalidCall, InvalidFeed, TensorType, Value, constant, differ, dims
from tenonnx_standard.casting import cast, cast_like
from tenonnx_standard.logic import equal, where
from tenonnx_standard.shapes import expand, reshape, shape, transpose, unsqueeze
from tenonnx_standard.slicing import gather

Array = np.ndarray[Any, Any]

#: Label that is ignored by the convention of PyTorch and Hugging Face.
IGNORED = -100

_SAY = "class_axis=1 for [batch, classes, ...] as in PyTorch, class_axis=-1 for [batch, ..., classes]"


def axis_of_classes(kind: TensorType, given: int | None) -> int:
    """The class axis, at least 1, of scores of type ``kind``.

    By default axis 1, or the last axis where it is the only one of known size. Raises ``InvalidCall`` where the shape
    of labels would not decide between the two.
    """
    if kind.shape is None:
        return 1 if given is None else given
    rank = len(kind.shape)
    if rank < 2:
        raise InvalidCall("the scores have no class axis, which a classification loss reads", given=str(kind))
    if given is not None:
        if not (isinstance(given, int) and -rank < given < rank and given != 0):
            raise InvalidCall(
                "class_axis is not an axis of the scores, or is the batch axis", given=f"{given} of {kind}"
            )
        return given % rank
    first, last = (isinstance(kind.shape[axis], int) for axis in (1, -1))
    if rank == 2 or (first and not last):
        return 1
    if last and not first:
        return rank - 1
    pairs = zip(kind.shape[2:], kind.shape[1:-1], strict=True)
    if any(isinstance(a, int) and isinstance(b, int) and a != b for a, b in pairs):
        return 1
    raise InvalidCall("the class axis is ambiguous", given=f"scores {kind}", do=_SAY)


def axis_by_labels(scores: tuple[Any, ...], labels: tuple[int, ...], given: int | None) -> int | None:
    """The class axis that remains when the shape of the labels is removed; None where labels are not class numbers."""
    if len(labels) != len(scores) - 1:
        return None
    if given is not None:
        return given % len(scores)
    fitting = [axis for axis in dict.fromkeys((1, len(scores) - 1)) if _agree(without(scores, axis), labels)]
    if len(fitting) == 2:
        kind = TensorType(DType.float32, scores)
        return axis_of_classes(kind, None)
    return fitting[0] if fitting else None


def without(sizes: tuple[Any, ...], axis: int) -> tuple[Any, ...]:
    return (*sizes[:axis], *sizes[axis + 1 :])


def _agree(sizes: tuple[Any, ...], labels: tuple[int, ...]) -> bool:
    return all(not isinstance(size, int) or size == label for size, label in zip(sizes, labels, strict=True))


def rows(scores: Value, axis: int) -> Value:
    """Scores with the class axis moved to axis 1; classes along the last of several axes become ``[n, classes]``."""
    if axis == 1:
        return scores
    if axis == scores.ndim - 1:
        return reshape(scores, [-1, dims(scores)[-1]])  # type: ignore[no-any-return]
    others = [k for k in range(1, scores.ndim) if k != axis]
    return transpose(scores, perm=[0, axis, *others])  # type: ignore[no-any-return]


def beside_rows(labels: Value, scores: Value, axis: int) -> Value:
    """Labels or weights in the layout of ``rows(scores, axis)``."""
    last = axis == scores.ndim - 1 and axis != 1
    return reshape(labels, [-1]) if last else labels


def is_column(prediction: TensorType, labels: int) -> bool:
    """Whether labels with ``labels`` axes belong to a prediction with one more axis, of size 1."""
    return prediction.shape is not None and prediction.shape[-1:] == (1,) and labels == len(prediction.shape) - 1


def beside_numbers(labels: Value, prediction: Value) -> Value:
    """Numeric labels in the shape of the prediction. Raises ``InvalidFeed`` for another shape."""
    if is_column(prediction.tensor, labels.ndim):
        labels = unsqueeze(labels, [-1])
    sizes, others = prediction.tensor.shape or (), labels.tensor.shape or ()
    if len(sizes) != len(others) or any(map(differ, sizes, others)):
        raise InvalidFeed(
            "labels and prediction differ in shape",
            given=f"predictions {prediction.type}, labels {labels.type}",
            do="output= says which value is the prediction",
        )
    return labels if labels.dtype is prediction.dtype else cast_like(labels, prediction)


def spread(weights: Value, each: Value) -> Value:
    """Expand weights of samples, or of elements, to one for each element."""
    further = list(range(weights.ndim, each.ndim))
    weights = unsqueeze(weights, further) if further else weights
    return expand(weights, shape(each))  # type: ignore[no-any-return]


def counts(labels: Value, weights: Sequence[float] | None, ignore_index: int | None) -> Value:
    """Weight of each label in float32: the weight of its class, and zero for ignored labels."""
    if ignore_index is None:
        known = labels
        found: Any = None
    else:
        found = equal(labels, constant(ignore_index, labels.dtype))
        known = where(found, constant(0, labels.dtype), labels)
    if weights is None:
        each = expand(constant(np.float32(1)), shape(labels))
    else:
        each = gather(constant(np.asarray(weights, np.float32)), known)
    return each if found is None else where(found, constant(np.float32(0)), each)  # type: ignore[no-any-return]


def wide(value: Value) -> Value:
    """``value`` cast to at least 32 bits, so that long sums stay accurate."""
    return cast(value, to=DType.float32) if value.dtype.bits < 32 else value


def check_classes(labels: Array, classes: Any, ignored: int | None, do: str) -> None:
    """Raise ``InvalidFeed`` for labels that are neither class numbers nor ignored."""
    counted = labels if ignored is None else labels[labels != ignored]
    if not counted.size or not isinstance(classes, int):
        return
    least, most = counted.min(), counted.max()
    if least >= 0 and most < classes:
        return
    wrong = least if least < 0 else most
    advice = f"number the classes from 0, or say which label to ignore: {do}" if wrong != IGNORED else do
    raise InvalidFeed(f"a label is outside of the classes 0 to {classes - 1}", given=f"label {wrong}", do=advice)
