"""Outputs that are positions in an input, such as those of ArgMax and the indices of MaxPool."""

from __future__ import annotations

from typing import Any

import numpy as np

from tenonnx.extend import Op
from tenonnx_testing.cases import Call


def about_ties(op: Op, drawn: Call, theirs: Any, ours: Any) -> str:
    """End of a message on outputs that differ, but are positions of equal elements of an input; else empty."""
    both = isinstance(theirs, np.ndarray) and isinstance(ours, np.ndarray) and theirs.shape == ours.shape
    if not both or theirs.dtype != np.int64 or ours.dtype != np.int64:
        return ""
    axis = drawn.attributes.get("axis")
    for place, array in enumerate(drawn.inputs):
        if not isinstance(array, np.ndarray) or array.dtype == object:
            continue
        try:
            first, second = (_elements(array, positions, axis) for positions in (theirs, ours))
        except (IndexError, ValueError):  # the outputs are no positions in this input
            continue
        if ((first == second) | ((first != first) & (second != second))).all():
            taken = "first" if (theirs <= ours).all() else "last" if (theirs >= ours).all() else "others"
            name = op.signature.input_at(place).name
            return f"; both are positions of equal elements of {name}, of which the other takes the {taken}"
    return ""


def _elements(array: np.ndarray[Any, Any], positions: np.ndarray[Any, Any], axis: Any) -> np.ndarray[Any, Any]:
    """The elements of an array at positions along an axis or, without one, in the flattened array."""
    if not isinstance(axis, int):
        return array.reshape(-1).take(positions)
    return np.take_along_axis(
        array, positions if positions.ndim == array.ndim else np.expand_dims(positions, axis), axis
    )
