"""Powers of floating-point arrays according to IEEE 754."""

from __future__ import annotations

import numpy as np

from tenonnx_standard.checking import Array


def power(X: Array, Y: Array) -> Array:
    """The IEEE 754 power; numpy uses the square root for a broadcast exponent of 0.5."""
    result, half = np.power(X, Y), Y == 0.5
    return np.where(half, root_of(X), result) if half.any() else result


def root_of(X: Array) -> Array:
    """The power 0.5, which is 0.0 for -0.0 and infinity for minus infinity."""
    root = np.sqrt(X) + X.dtype.type(0)
    return np.where(np.isneginf(X), X.dtype.type(np.inf), root)
