"""Python numbers as cached arrays, to avoid numpy's conversion at every call."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


@functools.lru_cache(1 << 12)
def scalar(value: float, dtype: np.dtype[Any]) -> Array:
    """``value`` as a read-only array of rank 0."""
    array = np.full((), value, dtype)
    array.flags.writeable = False
    return array
