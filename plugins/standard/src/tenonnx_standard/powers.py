"""Powers of floating-point arrays as IEEE 754 has them."""

from __future__ import annotations

import numpy as np

from tenonnx_standard.checking import Array


def power(X: Array, Y: Array) -> Array:
    """The power as IEEE 754 has it: numpy takes the root for an exponent of a half where one stands for many."""
    result, half = np.power(X, Y), Y == 0.5
    return np.where(half, root_of(X), result) if half.any() else result


def root_of(X: Array) -> Array:
    """The power of a half: of -0.0 that is 0.0, and of minus infinity infinity."""
    root = np.sqrt(X) + X.dtype.type(0)
    return np.where(np.isneginf(X), X.dtype.type(np.inf), root)
