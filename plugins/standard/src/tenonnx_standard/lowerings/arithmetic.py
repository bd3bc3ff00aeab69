"""Arithmetic by other arithmetic."""

from __future__ import annotations

from functools import reduce
from typing import Any

import numpy as np

import tenonnx_standard as ops
from tenonnx.extend import DType, NotRepresentable, Value
from tenonnx_standard.lowerings.registry import integers, like, lowering, numbers, of_floats, reshaped, sizes, unless

# ----- sums and products ----------------------------------------------------------------------------------------------


@lowering(ops.sub)
def sub_by_add(A, B):
    unless(not (B.dtype.is_float or B.dtype in (DType.int32, DType.int64)))
    return ops.add(A, ops.neg(B))


@lowering(ops.add)
def add_by_sub(A, B):
    return sub_of_negative(A, B)


@lowering(ops.add)
def add_by_sum(A, B):
    of_floats(A)
    return ops.sum_(A, B)


def sub_of_negative(A: Value, B: Value) -> Any:
    unless(not (B.dtype.is_float or B.dtype in (DType.int32, DType.int64)))
    return ops.sub(A, ops.neg(B))


@lowering(ops.add)
def add_by_conv(A, B):
    """A number for each channel as the bias of a convolution."""
    x, channels, added = _by_channel(A, B)
    return ops.conv(x, like(x, np.ones((channels, 1, *_ones(x)))), like(x, added), group=channels)


@lowering(ops.mul)
def mul_by_conv(A, B):
    """A number for each channel as the weights of a convolution."""
    x, channels, factors = _by_channel(A, B)
    return ops.conv(x, like(x, factors.reshape(channels, 1, *_ones(x))), group=channels)


def _ones(x: Value) -> list[int]:
    return [1] * (len(x.shape or ()) - 2)


def _by_channel(a: Value, b: Value) -> tuple[Value, int, Any]:
    """A feature map, its channels, and the constant number of each."""
    x, other = (b, a) if a.data is not None else (a, b)
    of_floats(x)
    shape, array = x.shape or (), numbers(other)
    unless(len(shape) not in (4, 5) or array.ndim > len(shape))
    channels = shape[1]
    if not isinstance(channels, int):
        raise NotRepresentable("the number of channels is not known")
    whole = np.ones(len(shape), int)
    whole[len(shape) - array.ndim :] = array.shape
    unless(whole.prod() != whole[1] or whole[1] not in (1, channels))
    return x, channels, np.broadcast_to(array.reshape(-1), (channels,))


@lowering(ops.sum_)
def sum_by_pairs(*data_0):
    return reduce(ops.add, data_0)


@lowering(ops.neg)
def neg_by_mul(X):
    return ops.mul(X, like(X, -1))


@lowering(ops.neg)
def neg_by_sub(X):
    return ops.sub(like(X, -0.0), X)


@lowering(ops.mul)
def mul_by_neg(A, B):
    x, factor = _factor(A, B)
    unless(factor != -1)
    return ops.neg(x)


@lowering(ops.mul)
def mul_by_sum(A, B):
    x, factor = _factor(A, B)
    unless(factor != 2)
    return ops.add(x, x)


def _factor(a: Value, b: Value) -> tuple[Value, Any]:
    """A value, and the one number that it is multiplied with."""
    x, other = (b, a) if a.data is not None else (a, b)
    array = numbers(other)
    unless(array.size != 1 or array.ndim > len(x.shape or ()))
    return x, array.reshape(-1)[0]


@lowering(ops.mul)
def mul_by_square(A, B):
    unless(A is not B)
    of_floats(A)
    return ops.pow_(A, like(A, 2))


def _reciprocal(value: Value) -> tuple[Any, bool]:
    """The reciprocals of constant numbers, and whether they are exact."""
    unless(value.dtype not in (DType.float16, DType.float32, DType.float64))
    array = numbers(value)
    with np.errstate(all="ignore"):
        inverse = (1 / array.astype(np.float64)).astype(array.dtype)
        sane = np.isfinite(array) & np.isfinite(inverse) & (np.abs(inverse) >= np.finfo(array.dtype).tiny)
    unless(not np.all(sane & (array != 0)))
    return inverse, bool(np.all(np.frexp(array)[0] % 0.5 == 0))


@lowering(ops.div)
def div_by_exact_mul(A, B):
    inverse, exact = _reciprocal(B)
    unless(not exact)
    return ops.mul(A, like(B, inverse))


@lowering(ops.div, "rounding")
def div_by_mul(A, B):
    return ops.mul(A, like(B, _reciprocal(B)[0]))


@lowering(ops.mul)
def mul_by_exact_div(A, B):
    x, other = (B, A) if A.data is not None else (A, B)
    inverse, exact = _reciprocal(other)
    unless(not exact)
    return ops.div(x, like(other, inverse))


@lowering(ops.mul, "rounding")
def mul_by_div(A, B):
    x, other = (B, A) if A.data is not None else (A, B)
    return ops.div(x, like(other, _reciprocal(other)[0]))


@lowering(ops.mul, "finite")
def mul_by_div_of_reciprocal(A, B):
    of_floats(A)
    return ops.div(A, ops.reciprocal(B))


@lowering(ops.div)
def div_by_reciprocal(A, B):
    array = numbers(A)
    unless(array.size != 1 or array.ndim > len(B.shape or ()) or array.reshape(-1)[0] != 1)
    of_floats(B)
    return ops.reciprocal(B)


@lowering(ops.div, "finite")
def div_by_mul_of_reciprocal(A, B):
    of_floats(A)
    return ops.mul(A, ops.reciprocal(B))


@lowering(ops.reciprocal)
def reciprocal_by_div(X):
    return ops.div(like(X, 1), X)


@lowering(ops.reciprocal, "rounding")
def reciprocal_by_pow(X):
    return ops.pow_(X, like(X, -1))


@lowering(ops.mean)
def mean_by_sum(*data_0):
    return ops.div(reduce(ops.add, data_0), like(data_0[0], len(data_0)))


# ----- powers ---------------------------------------------------------------------------------------------------------


@lowering(ops.sqrt, "finite")
def sqrt_by_pow(X):
    return ops.pow_(X, like(X, 0.5))


@lowering(ops.sqrt, "finite")
def sqrt_by_exp(X):
    return ops.exp(ops.mul(ops.log(X), like(X, 0.5)))


@lowering(ops.pow_, "rounding")
def pow_by_products(X, Y):
    """Off by an ulp for each product."""
    power = _exponent(X, Y)
    unless(power not in (2, 3, 4, 5, 6))
    return reduce(ops.mul, [X] * int(power))


@lowering(ops.pow_, "rounding")
def pow_by_reciprocal(X, Y):
    power = _exponent(X, Y)
    unless(power >= 0)
    return ops.reciprocal(X) if power == -1 else ops.reciprocal(ops.pow_(X, like(Y, -power)))


@lowering(ops.pow_, "finite")
def pow_by_sqrt(X, Y):
    unless(_exponent(X, Y) != 0.5)
    return ops.sqrt(X)


@lowering(ops.pow_, "approximate")
def pow_by_exp(X, Y):
    """Of positive numbers, within 1e-5 of the result for results up to 1e10."""
    of_floats(X, Y)
    return ops.exp(ops.mul(Y, ops.log(X)))


def _exponent(x: Value, y: Value) -> float:
    of_floats(x)
    array = numbers(y)
    unless(array.size != 1 or array.ndim > len(x.shape or ()))
    return float(array.reshape(-1)[0])


# ----- signs and bounds -----------------------------------------------------------------------------------------------


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


#: Bounds up to this size change no number that overflows with them.
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
    """The one for which the test holds; a NaN, which equals nothing, is taken first."""
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
    return ops.reduce_max(ops.concat(a, b, axis=0), integers([0]), keepdims=0)


@lowering(ops.minimum)
def minimum_by_reduction(*data_0):
    a, b = _stacked(data_0)
    return ops.reduce_min(ops.concat(a, b, axis=0), integers([0]), keepdims=0)


def _stacked(data: Any) -> tuple[Value, Value]:
    a, b = _pair(data)
    if a.shape != b.shape or a.shape is None:
        raise NotRepresentable("the inputs have different shapes")
    return reshaped(a, (1, *a.shape)), reshaped(b, (1, *b.shape))


@lowering(ops.sign)
def sign_by_clip_of_integers(input):
    unless(input.dtype not in (DType.int32, DType.int64))
    return ops.minimum(ops.maximum(input, like(input, -1)), like(input, 1))


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
    """Adding a number beyond which floats are whole rounds to even."""
    unless(X.dtype is not DType.float32)
    large = like(X, 1.5 * 2**23)
    return ops.sub(ops.add(X, large), large)


@lowering(ops.identity)
def identity_by_reshape(input):
    return ops.reshape(input, integers(sizes(input)))


@lowering(ops.identity)
def identity_by_mul(input):
    return ops.mul(input, like(input, 1))


@lowering(ops.identity)
def identity_by_add(input):
    of_floats(input)
    return ops.add(input, like(input, -0.0))


@lowering(ops.identity)
def identity_by_transpose(input):
    return ops.transpose(input, perm=list(range(len(input.shape))))
