"""Lowerings of signs, bounds and rounding to each other and to arithmetic."""

from __future__ import annotations

from functools import reduce
from typing import Any

import numpy as np

import tenonnx_standard as ops
from tenonnx.extend import DType, NotRepresentable, Value
from tenonnx_standard.lowerings.registry import integers, like, lowering, numbers, of_floats, reshaped, unless


@lowering(ops.absolute)
def absolute_by_maximum(X):
    unless(not (X.dtype.is_float or X.dtype in (DType.int32, DType.int64)))
    return ops.maximum(X, ops.neg(X))


@lowering(ops.absolute)
def absolute_by_relu(X):
    of_floats(X)
    return ops.add(ops.relu(X), ops.relu(ops.neg(X)))


@lowering(ops.absolute)
def absolute_by_leaky_relu(X):
    of_floats(X)
    return ops.leaky_relu(X, alpha=-1.0)


@lowering(ops.absolute)
def absolute_by_where(X):
    return ops.where(ops.less(X, like(X, 0)), ops.neg(X), X)


@lowering(ops.absolute)
def absolute_by_sign(X):
    of_floats(X)
    return ops.mul(X, ops.sign(X))


@lowering(ops.absolute, "finite")
def absolute_by_sqrt(X):
    of_floats(X)
    return ops.sqrt(ops.mul(X, X))


#: Numbers that overflow together with a bound of this size are unaffected by it.
_LARGEST_BOUND = {DType.float16: 8.0, DType.float32: 65536.0, DType.float64: 65536.0}


def _bound(data: Any) -> tuple[Value, Any]:
    """A value and its constant bound."""
    unless(len(data) != 2)
    x, other = reversed(data) if data[0].data is not None else data
    array = numbers(other)
    unless(array.ndim > len(x.shape or ()) or (array.size != 1 and x.shape is None))
    return x, array


def _moderate_bound(data: Any) -> tuple[Value, Value]:
    x, array = _bound(data)
    unless(x.dtype not in _LARGEST_BOUND or not np.all(np.abs(array) <= _LARGEST_BOUND[x.dtype]))
    return x, like(x, array)


@lowering(ops.maximum)
@lowering(ops.minimum)
def bound_of_one(*data_0):
    unless(len(data_0) != 1)
    return data_0[0]


@lowering(ops.maximum)
def maximum_by_pairs(*data_0):
    unless(len(data_0) < 3)
    return reduce(ops.maximum, data_0)


@lowering(ops.minimum)
def minimum_by_pairs(*data_0):
    unless(len(data_0) < 3)
    return reduce(ops.minimum, data_0)


@lowering(ops.maximum)
def maximum_by_relu_of_zero(*data_0):
    x, array = _bound(data_0)
    unless(array.size != 1 or array.reshape(-1)[0] != 0)
    return ops.relu(x)


@lowering(ops.maximum)
def maximum_by_clip(*data_0):
    x, array = _bound(data_0)
    unless(array.size != 1)
    return ops.clip(x, like(x, array.reshape(())))


@lowering(ops.minimum)
def minimum_by_clip(*data_0):
    x, array = _bound(data_0)
    unless(array.size != 1)
    return ops.clip(x, None, like(x, array.reshape(())))


@lowering(ops.maximum, "rounding")
def maximum_by_relu_of_difference(*data_0):
    """Off by an ulp of the bound."""
    x, bound = _moderate_bound(data_0)
    return ops.add(ops.relu(ops.sub(x, bound)), bound)


@lowering(ops.minimum, "rounding")
def minimum_by_relu_of_difference(*data_0):
    """Off by an ulp of the bound."""
    x, bound = _moderate_bound(data_0)
    return ops.sub(bound, ops.relu(ops.sub(bound, x)))


@lowering(ops.maximum)
def maximum_by_minimum(*data_0):
    of_floats(*data_0)
    return ops.neg(ops.minimum(*map(ops.neg, data_0)))


@lowering(ops.minimum)
def minimum_by_maximum(*data_0):
    of_floats(*data_0)
    return ops.neg(ops.maximum(*map(ops.neg, data_0)))


def _pair(data: Any) -> Any:
    unless(len(data) != 2)
    return data


@lowering(ops.maximum, "finite")
def maximum_by_relu(*data_0):
    a, b = _pair(data_0)
    of_floats(a)
    return ops.add(b, ops.relu(ops.sub(a, b)))


@lowering(ops.minimum, "finite")
def minimum_by_relu(*data_0):
    a, b = _pair(data_0)
    of_floats(a)
    return ops.sub(a, ops.relu(ops.sub(a, b)))


@lowering(ops.maximum, "finite")
def maximum_by_absolute(*data_0):
    a, b = _pair(data_0)
    of_floats(a)
    return ops.mul(ops.add(ops.add(a, b), ops.absolute(ops.sub(a, b))), like(a, 0.5))


@lowering(ops.minimum, "finite")
def minimum_by_absolute(*data_0):
    a, b = _pair(data_0)
    of_floats(a)
    return ops.mul(ops.sub(ops.add(a, b), ops.absolute(ops.sub(a, b))), like(a, 0.5))


@lowering(ops.maximum)
def maximum_by_where(*data_0):
    return _chosen(ops.greater, *_pair(data_0))


@lowering(ops.minimum)
def minimum_by_where(*data_0):
    return _chosen(ops.less, *_pair(data_0))


def _chosen(test: Any, a: Value, b: Value) -> Any:
    """``a`` where ``test`` is true, else ``b``; NaN, which equals nothing, is selected first."""
    kept = test(a, b)
    if a.dtype.is_float:
        kept = ops.or_(kept, ops.not_(ops.equal(a, a)))
    return ops.where(kept, a, b)


@lowering(ops.maximum, "finite")
def maximum_by_plain_where(*data_0):
    a, b = _pair(data_0)
    return ops.where(ops.greater(a, b), a, b)


@lowering(ops.minimum, "finite")
def minimum_by_plain_where(*data_0):
    a, b = _pair(data_0)
    return ops.where(ops.less(a, b), a, b)


@lowering(ops.maximum)
def maximum_by_reduction(*data_0):
    a, b = _stacked(data_0)
    return ops.reduce_max(ops.concat(a, b, axis=-1), integers([-1]), keepdims=0)


@lowering(ops.minimum)
def minimum_by_reduction(*data_0):
    a, b = _stacked(data_0)
    return ops.reduce_min(ops.concat(a, b, axis=-1), integers([-1]), keepdims=0)


def _stacked(data: Any) -> tuple[Value, Value]:
    a, b = _pair(data)
    if a.shape != b.shape or a.shape is None:
        raise NotRepresentable("the inputs have different shapes")
    return reshaped(a, (*a.shape, 1)), reshaped(b, (*b.shape, 1))


@lowering(ops.sign)
def sign_by_clip_of_integers(input):
    unless(input.dtype not in (DType.int32, DType.int64))
    return ops.minimum(ops.maximum(input, like(input, -1)), like(input, 1))


@lowering(ops.sign, "finite")
def sign_by_where(input):
    zero = like(input, 0)
    negative = ops.where(ops.less(input, zero), like(input, -1), zero)
    return ops.where(ops.greater(input, zero), like(input, 1), negative)


# ----- rounding -------------------------------------------------------------------------------------------------------


@lowering(ops.floor)
def floor_by_ceil(X):
    return ops.neg(ops.ceil(ops.neg(X)))


@lowering(ops.ceil)
def ceil_by_floor(X):
    return ops.neg(ops.floor(ops.neg(X)))


@lowering(ops.floor, "finite")
def floor_by_cast(X):
    towards_zero = ops.cast(ops.cast(X, to=DType.int64), to=X.dtype)
    return ops.sub(towards_zero, ops.cast(ops.greater(towards_zero, X), to=X.dtype))


@lowering(ops.floor)
def floor_by_round(X):
    near = ops.round_(X)
    return ops.where(ops.greater(near, X), ops.sub(near, like(X, 1)), near)


@lowering(ops.round_, "finite")
def round_by_sums(X):
    """Adding a number above which all floats are integers rounds halves to even."""
    unless(X.dtype is not DType.float32)
    large = like(X, 1.5 * 2**23)
    return ops.sub(ops.add(X, large), large)
