"""Lazy constants: computed from others in chunks while a model is saved."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tenonnx.extend import Contents, DType, TensorType, Value, interpreting, rows_of

Array = np.ndarray[Any, Any]

#: Number of elements computed at a time if the entire tensor is requested.
_AT_ONCE = 1 << 21


class Computed(Contents):
    """Tensor contents that are computed from others on each access and not stored.

    ``compute`` takes the start and end of a range along the first axis, and returns that part.
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
        result = self.rows(0, (*self._shape, 1)[0])
        result.flags.writeable = False
        return result

    def rows(self, start: int, stop: int) -> Array:
        with interpreting(None):
            return self._compute(start, stop)


def rows(value: Value, start: int, stop: int) -> Array:
    """Read a range of a constant along its first axis, without the rest if possible."""
    assert value.data is not None
    return rows_of(value.data, start, stop)  # type: ignore[no-any-return]


def transposed_rows(value: Value, make: Callable[[Array], Array]) -> Array:
    """Apply ``make`` to chunks of rows of a constant, and return the transpose of the result."""
    each = max(1, math.prod(d for d in value.shape[1:] if isinstance(d, int)))
    count, length = max(1, _AT_ONCE // each), value.shape[0]
    assert isinstance(length, int)
    parts = [make(rows(value, at, min(at + count, length))).T for at in range(0, length, count)]
    return np.concatenate(parts, axis=1) if parts else np.empty((0, 0))
