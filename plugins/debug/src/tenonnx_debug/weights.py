"""Random weights that keep the properties of the original that affect running it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]

#: Draws in place of numbers that are one of the original's.
_DRAWS = 20


class Numbers:
    """Random numbers, none of which is among ``originals`` but for zeros, ones and special values.

    Types of few numbers, such as int8 and float8, may have no others.
    """

    def __init__(self, seed: int, originals: Iterable[Array] = ()) -> None:
        self._random = np.random.default_rng(seed)
        floats = [each.astype(np.float64).reshape(-1) for each in originals if _is_of_floats(each)]
        self._originals = np.unique(np.concatenate(floats)) if floats else np.zeros(0)

    def replaced(self, contents: Array) -> Array:
        """Other numbers of the same shape and type, between the least and the greatest, in random places.

        Zeros, ones, minus ones, NaN and infinities stay where they are, signs stay, and rows that are equal stay equal.
        """
        if not contents.size or contents.dtype.kind in "OSU":
            return contents
        if contents.dtype.kind == "c":
            parts = self.replaced(contents.real.copy()), self.replaced(contents.imag.copy())
            return (parts[0] + 1j * parts[1]).astype(contents.dtype)
        draw = self._integers if contents.dtype.kind in "iu" else self._floats
        if contents.ndim < 2 or len(contents) < 2:
            return draw(contents)
        rows = contents.reshape(len(contents), -1)
        _, first, same = np.unique(_bits(rows), axis=0, return_index=True, return_inverse=True)
        return draw(rows[first])[same.reshape(-1)].reshape(contents.shape)

    def _floats(self, contents: Array) -> Array:
        wide = contents.astype(np.float64)
        change = np.isfinite(wide) & ~np.isin(wide, (0.0, 1.0, -1.0))
        made = contents.copy()
        least, greatest = (np.abs(wide[change]).min(), np.abs(wide[change]).max()) if change.any() else (0.0, 0.0)
        least = min(least, 0.6 * greatest)  # where all have one size
        for _ in range(_DRAWS):
            if not change.any():
                break
            drawn = np.sign(wide[change]) * self._random.uniform(least, greatest, change.sum())
            made[change] = drawn.astype(contents.dtype)
            change &= np.isin(made.astype(np.float64), self._originals) | (made == contents)
        return made

    def _integers(self, contents: Array) -> Array:
        change = contents != 0
        made = contents.copy()
        least, greatest = int(contents.min()), int(contents.max())
        for _ in range(_DRAWS):  # zeros stay where they are, and nowhere else
            if not change.any():
                break
            made[change] = self._random.integers(least, greatest, change.sum(), contents.dtype, endpoint=True)
            change &= made == 0
        return made


def _is_of_floats(contents: Array) -> bool:
    return contents.dtype.kind in "fV" and contents.dtype.names is None


def _bits(rows: Array) -> Array:
    """Rows as bytes, so that NaN equals itself."""
    return np.ascontiguousarray(rows).view(np.uint8).reshape(len(rows), -1)
