"""Class scores of losses and metrics: their axis, and the labels that are not ignored."""

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

#: Labels that count for nothing by the convention of PyTorch and Hugging Face.
IGNORED = -100

_SAY = "class_axis=1 for [batch, classes, ...] as in PyTorch, class_axis=-1 for [batch, ..., classes]"


def axis_of_classes(kind: TensorType, given: int | None) -> int:
    """The axis of the classes among scores of type ``kind``, from 1 on.

    By default it is axis 1, or the last one where that alone has a size that is known. Raises ``InvalidCall`` where
    labels could not tell the two apart.
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
    """The axis of the classes that the shape of the labels leaves; None where they are no labels of classes."""
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
    """Scores with their classes along axis 1; what lies along the last of several is rows of classes."""
    if axis == 1:
        return scores
    if axis == scores.ndim - 1:
        return reshape(scores, [-1, dims(scores)[-1]])  # type: ignore[no-any-return]
    others = [k for k in range(1, scores.ndim) if k != axis]
    return transpose(scores, perm=[0, axis, *others])  # type: ignore[no-any-return]


def beside_rows(labels: Value, scores: Value, axis: int) -> Value:
    """An element for each label, beside ``rows`` of its scores."""
    last = axis == scores.ndim - 1 and axis != 1
    return reshape(labels, [-1]) if last else labels


def is_column(prediction: TensorType, labels: int) -> bool:
    """Whether labels with so many axes are the numbers of the only column of a prediction."""
    return prediction.shape is not None and prediction.shape[-1:] == (1,) and labels == len(prediction.shape) - 1


def beside_numbers(labels: Value, prediction: Value) -> Value:
    """Labels that are numbers, in the type and shape of the prediction. Raises ``InvalidFeed`` for another shape."""
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
    """The weight of the sample, or of the element, for each element."""
    further = list(range(weights.ndim, each.ndim))
    weights = unsqueeze(weights, further) if further else weights
    return expand(weights, shape(each))  # type: ignore[no-any-return]


def counts(labels: Value, weights: Sequence[float] | None, ignore_index: int | None) -> Value:
    """Weight of each label: that of its class, zero where it is ignored. In float32."""
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
    """``value`` in at least 32 bits, as sums of many want it."""
    return cast(value, to=DType.float32) if value.dtype.bits < 32 else value


def check_classes(labels: Array, classes: Any, ignored: int | None, do: str) -> None:
    """Raise ``InvalidFeed`` for labels that are neither classes nor ignored."""
    counted = labels if ignored is None else labels[labels != ignored]
    if not counted.size or not isinstance(classes, int):
        return
    least, most = counted.min(), counted.max()
    if least >= 0 and most < classes:
        return
    wrong = least if least < 0 else most
    told = f"number the classes from 0, or say which label to ignore: {do}" if wrong != IGNORED else do
    raise InvalidFeed(f"a label is outside of the classes 0 to {classes - 1}", given=f"label {wrong}", do=told)
