"""Random weights that preserve the properties of the originals that affect execution."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]

#: Maximum number of draws to replace a random number that occurs in the originals.
_DRAWS = 20


class Numbers:
    """Generator of random tensors whose elements do not occur in ``originals``, except zeros, ones and special values.

    Small types, such as float8, may have too few other numbers; originals can occur then.
    """

    def __init__(self, seed: int, originals: Iterable[Array] = ()) -> None:
        self._random = np.random.default_rng(seed)
        floats = [each.astype(np.float64).reshape(-1) for each in originals if _is_of_floats(each)]
        self._originals = np.unique(np.concatenate(floats)) if floats else np.zeros(0)

    def replaced(self, contents: Array) -> Array:
        """Random contents of the same shape, dtype and range of magnitudes.

        Floats keep 0, 1, -1, NaN, infinities and signs; integers keep zeros. Equal rows stay equal. Strings are
        returned unchanged.
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
        result = contents.copy()
        least, greatest = (np.abs(wide[change]).min(), np.abs(wide[change]).max()) if change.any() else (0.0, 0.0)
        least = min(least, 0.6 * greatest)  # all magnitudes may be equal
        for _ in range(_DRAWS):
            if not change.any():
                break
            drawn = np.sign(wide[change]) * self._random.uniform(least, greatest, change.sum())
            result[change] = drawn.astype(contents.dtype)
            change &= np.isin(result.astype(np.float64), self._originals) | (result == contents)
        return result

    def _integers(self, contents: Array) -> Array:
        change = contents != 0
        result = contents.copy()
        least, greatest = int(contents.min()), int(contents.max())
        for _ in range(_DRAWS):  # no new zeros
            if not change.any():
                break
            result[change] = self._random.integers(least, greatest, change.sum(), contents.dtype, endpoint=True)
            change &= result == 0
        return result


def _is_of_floats(contents: Array) -> bool:
    return contents.dtype.kind in "fV" and contents.dtype.names is None


def _bits(rows: Array) -> Array:
    """Rows as bytes, for a comparison in which NaN equals itself."""
    return np.ascontiguousarray(rows).view(np.uint8).reshape(len(rows), -1)
