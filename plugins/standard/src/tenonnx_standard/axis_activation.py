"""Activations along an axis: Softmax, LogSoftmax and Hardmax, over a matrix below opset 13."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tenonnx.extend import Op, Value, axis, dims, op
from tenonnx_standard.casting import cast_like
from tenonnx_standard.checking import axis_within
from tenonnx_standard.constants import range_
from tenonnx_standard.logic import equal
from tenonnx_standard.math import exp, log
from tenonnx_standard.reduction import PLAIN_ROW, SHORT_ROW, extremum, is_half, reduce_max, reduce_sum, total, widened
from tenonnx_standard.selection import argmax
from tenonnx_standard.shapes import flatten, reshape, shape, transpose

if TYPE_CHECKING:
    from collections.abc import Callable

Array = np.ndarray[Any, Any]


def _as_matrix(op: Op, matrix: Op) -> None:
    """Lower ``op`` to its meaning below opset 13, on a matrix; another axis is first transposed to the end."""

    @op.lower(to=matrix)
    def made_to_matrix(input: Value, *, axis: int) -> Value:
        rank = input.ndim
        axis, last = axis % rank, rank - 1
        if axis == last:
            return matrix(input, axis=last)
        perm = list(range(rank))
        perm[axis], perm[last] = last, axis
        return transpose(matrix(transpose(input, perm=perm), axis=last), perm=perm)


def _on_matrix(op: Op, input: Value, axis: int) -> Value:
    """Apply ``op`` to the rows of ``input`` flattened at ``axis``."""
    axis %= input.ndim
    if axis == input.ndim - 1:
        return op(input, axis=axis)
    return reshape(op(flatten(input, axis=axis), axis=1), shape(input))


def _numpy_along(op: Op) -> Callable[[Callable[[Array, int], Array]], None]:
    """Register a numpy rule for an op, from a function of an array and a non-negative axis."""

    def register(compute: Callable[[Array, int], Array]) -> None:
        @np.errstate(all="ignore")
        def rule(x: Array, *, axis: int) -> Array:
            axis = axis_within(op, axis, x.ndim)
            return compute(widened(x), axis).astype(x.dtype, copy=False) if x.size else x

        op.numpy(rule)

    return register


def _shifted(x: Array, axis: int) -> Array:
    """``x`` minus its maximum along ``axis``, in a new array."""
    return np.subtract(x, extremum(np.maximum, x, (axis,)))


@op("Softmax")
def softmax(input, *, axis=-1):
    """Exponentials normalized to sum to one along ``axis``."""
    axes = [axis % input.ndim]
    e = exp(input - reduce_max(input, axes))
    return e / reduce_sum(e, axes)


softmax.requires(axis("axis", of="input"))


def _softmax(x, axis):
    e = _shifted(x, axis)
    np.exp(e, out=e)
    e /= total(e, (axis,))
    return e


_numpy_along(softmax)(_softmax)


@softmax.specialize
def softmax_specialize(x, *, axis):
    axis %= x.ndim
    size = x.shape[axis]
    if is_half(x.dtype):
        return None
    if axis < x.ndim - 1 or size > PLAIN_ROW or (size <= SHORT_ROW and x.size >= 64 * size):
        return lambda x: _softmax(x, axis)
    ones = np.ones(size, x.dtype)

    def along_rows(x):
        rows = x.reshape(-1, size)
        e = np.subtract(rows, np.maximum.reduce(rows, axis=1)[:, None])
        np.exp(e, out=e)
        e /= np.dot(e, ones)[:, None]
        return e.reshape(x.shape)

    return along_rows


@softmax.vjp
def softmax_vjp(g, y, input, *, axis):
    product = g * y
    return product - y * reduce_sum(product, [axis % input.ndim])


@softmax.until(13)
def softmax_2d(input, *, axis=1):
    """Softmax over the rows of ``input`` flattened to a matrix at ``axis``."""
    return _on_matrix(softmax, input, axis)


softmax_2d.requires(axis("axis", of="input"))
_as_matrix(softmax, softmax_2d)
softmax_2d.until(11, positive=["axis"])


@op("LogSoftmax")
def log_softmax(input, *, axis=-1):
    """The logarithm of the softmax along ``axis``."""
    axes = [axis % input.ndim]
    x = input - reduce_max(input, axes)
    return x - log(reduce_sum(exp(x), axes))


log_softmax.requires(axis("axis", of="input"))


@_numpy_along(log_softmax)
def log_softmax_numpy(x, axis):
    y = _shifted(x, axis)
    y -= np.log(total(np.exp(y), (axis,)))
    return y


@log_softmax.vjp
def log_softmax_vjp(g, y, input, *, axis):
    return g - exp(y) * reduce_sum(g, [axis % input.ndim])


@log_softmax.until(13)
def log_softmax_2d(input, *, axis=1):
    """Logarithm of the softmax over the rows of ``input`` flattened to a matrix at ``axis``."""
    return _on_matrix(log_softmax, input, axis)


log_softmax_2d.requires(axis("axis", of="input"))
_as_matrix(log_softmax, log_softmax_2d)
log_softmax_2d.until(11, positive=["axis"])


@op("Hardmax")
def hardmax(input, *, axis=-1):
    """1 at the first maximum along ``axis``, else 0."""
    axis %= input.ndim
    positions = reshape(range_(0, dims(input)[axis], 1), [-1] + [1] * (input.ndim - 1 - axis))
    return cast_like(equal(positions, argmax(input, axis=axis)), input)


hardmax.requires(axis("axis", of="input"))
hardmax.vjp(lambda g, y, x, **_: None)


@_numpy_along(hardmax)
def hardmax_numpy(x, axis):
    y = np.zeros_like(x)
    np.put_along_axis(y, x.argmax(axis, keepdims=True), 1, axis)
    return y


@hardmax.until(13)
def hardmax_2d(input, *, axis=1):
    """Hardmax over the rows of ``input`` flattened to a matrix at ``axis``."""
    return _on_matrix(hardmax, input, axis)


hardmax_2d.requires(axis("axis", of="input"))
_as_matrix(hardmax, hardmax_2d)
hardmax_2d.until(11, positive=["axis"])
