"""Lazy constants, computed from others in blocks of rows while a file is written."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tenonnx.extend import Contents, DType, TensorType, Value, interpreting, rows_of

Array = np.ndarray[Any, Any]

#: How many elements are read at a time where all of a tensor is wanted.
_AT_ONCE = 1 << 21


class Computed(Contents):
    """Contents that are computed from others whenever they are asked for, and not kept.

    ``compute`` gives the positions from the first to the second number along the first axis.
    """

    __slots__ = ("_compute", "type")

    def __init__(self, dtype: DType, shape: Sequence[int], compute: Callable[[int, int], Array]) -> None:
        self.type = TensorType(dtype, tuple(shape))
        self._compute = compute

    @property
    def _shape(self) -> list[int]:
        return [d for d in self.type.shape or () if isinstance(d, int)]

    @property
    def nbytes(self) -> int:
        return -(-math.prod(self._shape) * self.type.dtype.bits // 8)

    def array(self) -> Array:
        found = self.rows(0, (*self._shape, 1)[0])
        found.flags.writeable = False
        return found

    def rows(self, start: int, stop: int) -> Array:
        with interpreting(None):
            return self._compute(start, stop)


def rows(value: Value, start: int, stop: int) -> Array:
    """These positions of a constant along its first axis, read by themselves where that is possible."""
    assert value.data is not None
    return rows_of(value.data, start, stop)  # type: ignore[no-any-return]


def turned(value: Value, make: Callable[[Array], Array]) -> Array:
    """The transpose of what ``make`` makes of the rows of a constant, some rows at a time."""
    each = max(1, math.prod(d for d in value.shape[1:] if isinstance(d, int)))
    count, length = max(1, _AT_ONCE // each), value.shape[0]
    assert isinstance(length, int)
    parts = [make(rows(value, at, min(at + count, length))).T for at in range(0, length, count)]
    return np.concatenate(parts, axis=1) if parts else np.empty((0, 0))
