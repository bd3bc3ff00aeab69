"""Arithmetic, powers and rounding, element by element."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from tenonnx.extend import DType, Index, TensorType, TypeMismatch, Value, elementwise, op, primitive, same_type
from tenonnx_standard.casting import cast
from tenonnx_standard.logic import equal, greater, less, where

Array = np.ndarray[Any, Any]


# ----- arithmetic -----------------------------------------------------------------------------------------------------


@elementwise("Add", symbolic=True)
def add(A, B):
    """A + B."""


add.numpy(np.add)
add.vjp(lambda g, y, A, B: (g, g))


@elementwise("Sub", symbolic=True)
def sub(A, B):
    """A - B."""


sub.numpy(np.subtract)
sub.vjp(lambda g, y, A, B: (g, neg(g)))


@elementwise("Mul", symbolic=True)
def mul(A, B):
    """A * B."""


mul.numpy(np.multiply)
mul.vjp(lambda g, y, A, B: (g * B, g * A))


@elementwise("Div", symbolic=True)
def div(A, B):
    """A / B; for integers the quotient rounded towards zero."""


@div.numpy
def _(A: Array, B: Array) -> Array:
    if A.dtype.kind not in "iuO":
        return np.divide(A, B)
    return np.floor_divide(A, B)


@div.vjp
def _(g: Value, y: Value, A: Value, B: Value) -> tuple[Value, Value]:
    return g / B, neg(g * (y / B))


@elementwise("Neg", symbolic=True)
def neg(X):
    """-X."""


neg.numpy(np.negative)
neg.vjp(lambda g, y, X: neg(g))


@elementwise("Abs")
def absolute(X):
    """The magnitude of X."""


absolute.numpy(np.absolute)
absolute.vjp(lambda g, y, X: g * sign(X))


@elementwise("Sign", since=9)
def sign(input):
    """-1, 0 or 1 for negative, zero and positive elements."""


sign.numpy(np.sign)
sign.vjp(lambda g, y, input: None)


@elementwise("Reciprocal")
def reciprocal(X):
    """1 / X."""


reciprocal.numpy(np.reciprocal)
reciprocal.vjp(lambda g, y, X: neg(g * y * y))


# ----- rounding -------------------------------------------------------------------------------------------------------


@elementwise("Ceil")
def ceil(X):
    """The least integer that is not below X."""


@elementwise("Floor")
def floor(X):
    """The greatest integer that is not above X."""


@elementwise("Round", since=11)
def round_(X):
    """The nearest integer, the even one of two."""


ceil.numpy(np.ceil)
floor.numpy(np.floor)
round_.numpy(np.rint)
for _step in (ceil, floor, round_):
    _step.vjp(lambda g, y, X: None)


# ----- powers ---------------------------------------------------------------------------------------------------------


@elementwise("Sqrt")
def sqrt(X):
    """The square root; NaN below zero."""


sqrt.numpy(np.sqrt)
sqrt.vjp(lambda g, y, X: g / (y + y))


@elementwise("Exp")
def exp(input):
    """e to the power of ``input``."""


exp.numpy(np.exp)
exp.vjp(lambda g, y, input: g * y)


@elementwise("Log")
def log(input):
    """The natural logarithm; NaN below zero."""


log.numpy(np.log)
log.vjp(lambda g, y, input: g / input)


@elementwise("Pow", mixed=("Y",))
def pow_(X, Y):
    """X to the power of Y, in the element type of X."""


@pow_.numpy
def _(X: Array, Y: Array) -> Array:
    return np.asarray(np.power(X, Y)).astype(X.dtype, copy=False)


@pow_.vjp
def _(g: Value, y: Value, X: Value, Y: Value) -> tuple[Value, Value | None]:
    exponent = cast(Y, to=X.dtype)
    base = g * exponent * pow_(X, where(equal(exponent, 0), 1, exponent - 1))
    if not Y.dtype.is_float:
        return base, None
    return base, cast(g * y * log(where(greater(X, 0), X, 1)), to=Y.dtype)


@elementwise("Mod", since=10, symbolic=True)
def mod(A, B, *, fmod=0):
    """The remainder of A / B: with the sign of B, or with ``fmod`` that of A."""


@mod.numpy
def _(A: Array, B: Array, *, fmod: int = 0) -> Array:
    return np.fmod(A, B) if fmod else np.remainder(A, B)


@mod.vjp
def _(g: Value, y: Value, A: Value, B: Value, *, fmod: int) -> tuple[Value, Value]:
    return g, neg(g * round_((A - y) / B))


# ----- several inputs -------------------------------------------------------------------------------------------------


@elementwise("Max", selects=True, symbolic=True)
def maximum(*data_0):
    """The greatest of the inputs, element by element; NaN where one is NaN."""


@maximum.numpy
def _(*data_0: Array) -> Array:
    return functools.reduce(np.maximum, data_0)


@elementwise("Min", selects=True, symbolic=True)
def minimum(*data_0):
    """The least of the inputs, element by element; NaN where one is NaN."""


@minimum.numpy
def _(*data_0: Array) -> Array:
    return functools.reduce(np.minimum, data_0)


def _extreme_gradient(g: Value, y: Value, *data_0: Value) -> tuple[Value, ...]:
    """The cotangent goes to the inputs that are the extreme one, in equal parts."""
    if len(data_0) == 1:
        return (g,)
    chosen = [cast(equal(x, y), to=y.dtype) for x in data_0]
    share = g / functools.reduce(add, chosen)
    return tuple(share * c for c in chosen)


maximum.vjp(_extreme_gradient)
minimum.vjp(_extreme_gradient)


@op("Sum", broadcasts=True)
def sum_(*data_0):
    """The sum of the inputs, element by element."""
    return functools.reduce(add, data_0)


@sum_.vjp
def _(g: Value, y: Value, *data_0: Value) -> tuple[Value, ...]:
    return (g,) * len(data_0)


@op("Mean", broadcasts=True)
def mean(*data_0):
    """The mean of the inputs, element by element."""
    return sum_(*data_0) / len(data_0)


@op("Clip", selects=True)
def clip(input, min=None, max=None):
    """``input`` held between ``min`` and ``max``; ``max`` wins where they cross."""
    if min is not None:
        input = maximum(input, min)
    if max is not None:
        input = minimum(input, max)
    return input


# ----- tests ----------------------------------------------------------------------------------------------------------


@elementwise("IsNaN", since=9, result=DType.bool)
def isnan(X):
    """Whether X is not a number."""


isnan.numpy(np.isnan)


@elementwise("IsInf", since=10, result=DType.bool)
def isinf(X, *, detect_negative=1, detect_positive=1):
    """Whether X is infinite, of a sign that is to be detected."""


@isinf.numpy
def _(X: Array, *, detect_negative: int = 1, detect_positive: int = 1) -> Array:
    if detect_negative and detect_positive:
        return np.isinf(X)
    return np.isinf(X) & ((X > 0) if detect_positive else (X < 0) if detect_negative else False)
