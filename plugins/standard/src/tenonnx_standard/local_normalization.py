"""Local response normalization (LRN)."""

from __future__ import annotations

import functools
import operator

import numpy as np

from tenonnx.extend import TensorType, Value, at_least, floats, limits, op, shapes
from tenonnx_standard.math import pow_
from tenonnx_standard.padding import pad
from tenonnx_standard.reduction import widened


@op("LRN")
def lrn(X, *, alpha=1e-4, beta=0.75, bias=1.0, size: int):
    """Divide ``X`` by a power of the mean square of its ``size`` neighbors along the channels.

    Section 3.3 of the AlexNet paper (Krizhevsky et al., 2012).
    """
    return X / pow_(_local(X, alpha, bias, size), beta)


def _local(X: Value, alpha: float, bias: float, size: int) -> Value:
    """The base of the power. If ``size`` is even, one more neighbor follows the channel than precedes it."""
    return _window_sum(X * X, (size - 1) // 2, size // 2) * (alpha / size) + bias


#: Nodes per neighbor, including the expansion of its Slice.
_FOR_A_NEIGHBOR = 16


def _window_sum(x: Value, before: int, after: int) -> Value:
    """For each channel, the sum over the ``before`` channels before it up to the ``after`` channels after it."""
    channels = x.shape[1] if isinstance(x.type, TensorType) and x.type.shape else None
    if isinstance(channels, int):  # at most all channels are neighbors
        before, after = min(before, max(channels - 1, 0)), min(after, max(channels - 1, 0))
    limits.check("nodes", (before + after + 1) * _FOR_A_NEIGHBOR, "the sum over neighbors of LRN")
    around = [0] * x.ndim
    starts, ends = around.copy(), around.copy()
    starts[1], ends[1] = before, after
    padded, last = pad(x, [*starts, *ends]), before + after
    return functools.reduce(operator.add, [padded[:, k : k - last or None] for k in range(last + 1)])


lrn.requires(shapes(X="batch channels ..."), floats("X"), at_least(size=1))


@lrn.numpy
@np.errstate(all="ignore")
def lrn_numpy(X, *, alpha, beta, bias, size):
    x = widened(X)
    squares = x * x
    sums = squares.copy()
    for distance in range(1, min(size, x.shape[1] + 1)):
        if distance <= (size - 1) // 2:
            sums[:, distance:] += squares[:, :-distance]
        if distance <= size // 2:
            sums[:, :-distance] += squares[:, distance:]
    sums *= x.dtype.type(alpha / size)
    sums += x.dtype.type(bias)
    if beta == 0.75:
        root = np.sqrt(sums)
        power = np.sqrt(root)
        power *= root
    else:
        power = np.power(sums, x.dtype.type(beta))
    return np.divide(x, power, out=power).astype(X.dtype, copy=False)


@lrn.vjp
def lrn_vjp(g, y, X, *, alpha, beta, bias, size):
    local = _local(X, alpha, bias, size)
    shared = _window_sum(g * y / local, size // 2, (size - 1) // 2)
    return g / pow_(local, beta) - X * shared * (2 * alpha * beta / size)
