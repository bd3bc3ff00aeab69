"""Checks of training data before the first step: non-finite numbers, labels, and sample weights."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from tenonnx.extend import InvalidFeed

Array = np.ndarray[Any, Any]


class InvalidSample(InvalidFeed):
    """A sample of the data cannot be trained on. ``sample`` counts from 0; ``name`` is the array."""

    name = ""
    sample = 0


def check_samples(
    arrays: Mapping[str, Any],
    *,
    labels: str | None,
    classes: bool,
    weights: str | None,
    missing: bool,
    check: Callable[[Mapping[str, Any]], None],
) -> None:
    """Raise ``InvalidSample`` for the first sample that cannot be trained on.

    ``arrays`` has all samples by name; arrays that are not of numpy are read batch by batch and not checked here.
    ``classes`` requires integer labels. Inputs may have NaN where the model handles ``missing`` numbers. ``check``
    raises ``InvalidFeed`` for labels that the loss does not accept.
    """
    for name, array in arrays.items():
        if (
            isinstance(array, np.ndarray)
            and array.dtype.kind in "fc"
            and not (missing and name not in (labels, weights))
        ):
            _check_finite(name, array)
    weights_array = None if weights is None else arrays.get(weights)
    if isinstance(weights_array, np.ndarray) and weights_array.size and weights_array.dtype.kind in "fiu":
        _check_weights(str(weights), weights_array)
    label_array = None if labels is None else arrays.get(labels)
    if isinstance(label_array, np.ndarray) and label_array.dtype.kind in "iub":
        _check_labels(str(labels), label_array, check)
    if isinstance(label_array, np.ndarray) and label_array.dtype.kind == "f" and classes:
        _check_whole(str(labels), label_array)


def _check_finite(name: str, array: Array) -> None:
    finite = np.isfinite(array)
    if finite.all():
        return
    place = tuple(map(int, np.argwhere(~finite)[0]))
    sample, element = place[0] if place else 0, f", element {list(place[1:])}" if len(place) > 1 else ""
    raise _invalid(
        name,
        sample,
        f'"{name}" holds {array[place]} in sample {sample}',
        given=f"{int((~finite).sum())} of {array.size} elements are not finite; the first: sample {sample}{element}",
        do="leave these samples out, or fill them in",
    )


def _check_weights(name: str, array: Array) -> None:
    if (array < 0).any():
        sample = int(np.argwhere(array < 0)[0][0])
        what = f'sample weight "{name}" is negative in sample {sample}'
        raise _invalid(name, sample, what, given=str(array.flat[sample]))
    if not array.any():
        raise _invalid(
            name, 0, f'all sample weights "{name}" are zero', do="leave the weights out to count all samples"
        )


def _check_labels(name: str, array: Array, check: Callable[[Mapping[str, Any]], None]) -> None:
    def problem(count: int) -> InvalidFeed | None:
        try:
            check({name: array[:count]})
        except InvalidFeed as error:
            return error
        return None

    found = problem(len(array)) if array.ndim and len(array) else None
    if found is None:
        return
    right, wrong = 0, len(array)  # lengths of a correct and of a wrong prefix: bisection finds the first wrong sample
    while wrong - right > 1:
        middle = (right + wrong) // 2
        right, wrong = (right, middle) if problem(middle) else (middle, wrong)
    first = problem(wrong) or found
    raise _invalid(
        name, wrong - 1, first.what, given=f"{first.given} in sample {wrong - 1} (counted from 0)", do=first.do
    ) from first


def _check_whole(name: str, array: Array) -> None:
    if (array % 1 != 0).any():
        sample = int(np.argwhere(array % 1 != 0)[0][0])
        raise _invalid(
            name,
            sample,
            f'label "{name}" is not a class number in sample {sample}',
            given=str(array[sample]),
            do="number the classes from 0 on, or choose a loss of numbers such as mean_squared_error",
        )


def _invalid(name: str, sample: int, what: str, **parts: str) -> InvalidSample:
    error = InvalidSample(what, **parts)
    error.name, error.sample = name, sample
    return error
