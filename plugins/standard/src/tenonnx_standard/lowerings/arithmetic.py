"""Lowerings of arithmetic to other arithmetic."""

from __future__ import annotations

from functools import reduce
from typing import Any

import numpy as np

import tenonnx_standard as ops
from tenonnx.extend import DType, NotRepresentable, Value
from tenonnx_standard.lowerings.registry import integers, like, lowering, numbers, of_floats, sizes, unless

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
    """Add a constant per channel as the bias of a depthwise convolution."""
    x, channels, added = _by_channel(A, B)
    return ops.conv(x, like(x, np.ones((channels, 1, *_ones(x)))), like(x, added), group=channels)


@lowering(ops.mul)
def mul_by_conv(A, B):
    """Multiply by a constant per channel as the weights of a depthwise convolution."""
    x, channels, factors = _by_channel(A, B)
    return ops.conv(x, like(x, factors.reshape(channels, 1, *_ones(x))), group=channels)


def _ones(x: Value) -> list[int]:
    return [1] * (len(x.shape or ()) - 2)


def _by_channel(a: Value, b: Value) -> tuple[Value, int, Any]:
    """A feature map, its number of channels, and the constant for each channel."""
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


@lowering(ops.mul, "finite")
def mul_by_matmul(A, B):
    """Multiply by constant factors along the last axis as a diagonal matrix."""
    x, factors = _along_last(A, B)
    return ops.matmul(x, like(x, np.diag(factors)))


@lowering(ops.add, "finite")
def add_by_gemm(A, B):
    """Add constants along the last axis as the bias of a product with the identity matrix."""
    x, added = _along_last(A, B)
    unless(x.rank != 2)
    return ops.gemm(x, like(x, np.eye(len(added))), like(x, added))


def _along_last(a: Value, b: Value) -> tuple[Value, Any]:
    """A value of rank 2 or more, and the constants for each position of its last axis."""
    x, other = (b, a) if a.data is not None else (a, b)
    of_floats(x)
    array, size = numbers(other), (x.shape or ())[-1:]
    unless((x.rank or 0) < 2 or not isinstance(size[0], int) or size[0] > 1024 or array.ndim > (x.rank or 0))
    unless(array.size not in (1, size[0]) or (array.size > 1 and array.shape[-1] != size[0]))
    return x, np.broadcast_to(array.reshape(-1), size)


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
    """A value and the constant scalar multiplying it."""
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
    """The reciprocals of constants, and whether they are exact."""
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
    """For a positive base, within 1e-5 of the result for results up to 1e10."""
    of_floats(X, Y)
    return ops.exp(ops.mul(Y, ops.log(X)))


def _exponent(x: Value, y: Value) -> float:
    of_floats(x)
    array = numbers(y)
    unless(array.size != 1 or array.ndim > len(x.shape or ()))
    return float(array.reshape(-1)[0])


# ----- identity -------------------------------------------------------------------------------------------------------


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
