"""Arithmetic, powers and rounding, element by element."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

import tenonnx_standard as ops
from tenonnx.extend import (
    DType,
    Operand,
    TypeMismatch,
    Value,
    constant,
    elementwise,
    op,
    shapes,
    static,
    symbolic,
)
from tenonnx_standard.broadcasting import one_shape, one_way
from tenonnx_standard.casting import cast
from tenonnx_standard.checking import of_dims
from tenonnx_standard.error_function import DOUBLE, LAST_DOUBLE, error_function
from tenonnx_standard.logic import and_, equal, greater, less, not_, or_, where
from tenonnx_standard.powers import power, root_of

Array = np.ndarray[Any, Any]


# ----- arithmetic -----------------------------------------------------------------------------------------------------


@elementwise("Add")
def add(A, B):
    """A + B."""


add.symbolic(add.numpy(np.add))
add.vjp(lambda g, y, A, B: (g, g))
add.traits(integer_sums="inputs")


@elementwise("Sub")
def sub(A, B):
    """A - B."""


sub.symbolic(sub.numpy(np.subtract))
sub.vjp(lambda g, y, A, B: (g, neg(g)))


@elementwise("Mul")
def mul(A, B):
    """A * B."""


mul.symbolic(mul.numpy(np.multiply))
mul.vjp(lambda g, y, A, B: (g * B, g * A))


@elementwise("Div")
def div(A, B):
    """A / B; integer division truncates towards zero."""


div.symbolic(of_dims(symbolic.truncate_div))


@div.numpy
def div_numpy(A: Array, B: Array) -> Array:
    kind = A.dtype.kind
    with np.errstate(all="ignore"):
        if kind == "u":
            return np.floor_divide(A, B)
        if kind != "i":
            return np.divide(A, B)
        if A.dtype.itemsize < 8 or _fits_float64(A):
            return np.divide(A, B, dtype=np.float64).astype(A.dtype)
        quotient = np.floor_divide(A, B)
        return quotient + ((quotient * B != A) & ((A < 0) != (B < 0)))


div.specialize(lambda A, B: None if A.dtype.kind in "iuO" else np.divide)


def _fits_float64(x: Array) -> bool:
    """Whether float64 represents these integers, and hence their quotients rounded down, exactly."""
    return int(x.min(initial=0)) > -(1 << 53) and int(x.max(initial=0)) < 1 << 53


@div.vjp
def div_vjp(g: Value, y: Value, A: Value, B: Value) -> tuple[Value, Value]:
    return g / B, neg(g * (y / B))


@elementwise("Neg")
def neg(X):
    """-X."""


neg.symbolic(neg.numpy(np.negative))
neg.vjp(lambda g, y, X: neg(g))
neg.lower()(lambda X: mul(X, -1))  # keeps the sign of zeros, which 0 - X would lose


@elementwise("Abs")
def absolute(X):
    """The absolute value of X."""


absolute.numpy(np.absolute)
absolute.vjp(lambda g, y, X: g * sign(X))


@op("Sign", since=9, broadcasts=True)
def sign(input):
    """-1 for negative, 0 for zero and 1 for positive elements."""
    zero = constant(np.zeros(()), input.dtype)
    return cast(greater(input, zero), to=input.dtype) - cast(less(input, zero), to=input.dtype)


sign.numpy(np.sign)
sign.vjp(lambda g, y, x: None)


@elementwise("Reciprocal")
def reciprocal(X):
    """1 / X."""


reciprocal.numpy(np.reciprocal)
reciprocal.vjp(lambda g, y, X: neg(g * y * y))
reciprocal.lower()(lambda X: div(1.0, X))


# ----- rounding -------------------------------------------------------------------------------------------------------


@elementwise("Ceil")
def ceil(X):
    """The smallest integer not below X."""


@elementwise("Floor")
def floor(X):
    """The largest integer not above X."""


@op("Round", since=11, broadcasts=True)
def round_(X):
    """The nearest integer; halves round to even."""
    below = floor(X)
    rest = X - below
    odd = greater(below - floor(below / 2) * 2, 0)
    up = or_(greater(rest, 0.5), and_(not_(less(rest, 0.5)), odd))
    return below + cast(up, to=X.dtype)


ceil.numpy(np.ceil)
floor.numpy(np.floor)
round_.numpy(np.rint)
ceil.lower()(lambda X: neg(floor(neg(X))))
for _step in (ceil, floor, round_):
    _step.vjp(lambda g, y, X: None)


# ----- powers ---------------------------------------------------------------------------------------------------------


@elementwise("Sqrt")
def sqrt(X):
    """The square root; NaN for negative numbers."""


sqrt.numpy(np.sqrt)
sqrt.vjp(lambda g, y, X: g / (y + y))


@elementwise("Exp")
def exp(input):
    """e to the power of ``input``."""


exp.numpy(np.exp)
exp.vjp(lambda g, y, x: g * y)


@elementwise("Log")
def log(input):
    """The natural logarithm; NaN for negative numbers."""


log.numpy(np.log)
log.vjp(lambda g, y, x: g / x)


@elementwise("Pow", mixed=("Y",))
def pow_(X, Y):
    """X to the power of Y, in the dtype of X."""


@pow_.numpy
def pow_numpy(X: Array, Y: Array) -> Array:
    with np.errstate(all="ignore"):
        if Y.size == 1 and Y.ndim <= X.ndim and X.dtype.kind not in "iu":
            exponent = float(Y.reshape(()))
            if exponent == 2:
                return np.square(X)
            if exponent == 0.5 and X.dtype.kind == "f":
                return root_of(X)
            if exponent == 3:
                return X * X * X
        if X.dtype.kind in "iu" and Y.dtype.kind in "iu":
            return _integerpower(X, Y)
        if X.dtype == Y.dtype:
            return power(X, Y)
        if X.dtype.kind not in "iu" and Y.dtype.kind in "iu":
            wide = np.promote_types(X.dtype, np.float32)
        else:
            wide = np.dtype(np.float64)
        return power(X.astype(wide), Y.astype(wide)).astype(X.dtype)


@pow_.specialize
def pow_specialize(X: Operand, Y: Operand) -> Any:
    same = X.dtype == Y.dtype and X.dtype.kind == "f"
    if same and Y.ndim == 0 and Y.contents is not None and Y.contents == 2:
        return lambda X, Y: np.square(X)
    return power if same and Y.size != 1 else None


@pow_.lower()
def pow_lowering(X: Value, Y: Value) -> Value | None:
    """Pow for opsets with a single dtype: in float64, which represents all numbers but the largest integers."""
    if X.dtype is Y.dtype or not (X.dtype.is_float or Y.dtype.is_float):
        return None
    return cast(pow_(cast(X, to=DType.float64), cast(Y, to=DType.float64)), to=X.dtype)  # type: ignore[no-any-return]


def _integerpower(X: Array, Y: Array) -> Array:
    near = Y if Y.dtype == X.dtype else np.where(Y > 64, 64 + Y % 2, Y)  # beyond the bits of X, only parity matters
    if Y.dtype.kind == "u" or not (Y < 0).any():
        return np.power(X, near.astype(X.dtype))
    result = np.power(X, np.maximum(near, 0).astype(X.dtype))
    inverse = np.where(X == 1, 1, np.where(X == -1, np.where(Y % 2 == 0, 1, -1), 0))
    return np.where(Y < 0, inverse.astype(X.dtype), result)


@pow_.vjp
def pow_vjp(g: Value, y: Value, X: Value, Y: Value) -> tuple[Value, Value | None]:
    exponent = cast(Y, to=X.dtype)
    contents = static(Y)
    if contents is not None and contents.size == 1 and contents.reshape(()) != 0:
        less_one = exponent - 1
    else:
        less_one = where(equal(exponent, 0), 1, exponent - 1)
    base = g * exponent * pow_(X, less_one)
    if not Y.dtype.is_float:
        return base, None
    return base, cast(g * y * log(where(greater(X, 0), X, 1)), to=Y.dtype)


@elementwise("Mod", since=10)
def mod(A, B, *, fmod=0):
    """The remainder of A / B, with the sign of B, or with ``fmod`` the sign of A."""


@mod.symbolic
@mod.numpy
def mod_numpy(A: Array, B: Array, *, fmod: int = 0) -> Array:
    with np.errstate(all="ignore"):
        return np.fmod(A, B) if fmod else np.remainder(A, B)


@mod.vjp
def mod_vjp(g: Value, y: Value, A: Value, B: Value, *, fmod: int) -> tuple[Value, Value]:
    return g, neg(g * round_((A - y) / B))


@mod.until(28)
def mod_of_integers(A, B, *, fmod=0):
    """Mod that takes floats only with ``fmod``."""
    if not fmod and A.dtype.is_float:
        raise TypeMismatch(
            f"{mod_of_integers.title}: fmod is 0 for floating-point inputs",
            given=f"fmod={fmod}, {A!r}",
            do="use opset 28, or set fmod=1",
        )
    return mod(A, B, fmod=fmod)


@mod.lower(to=mod_of_integers)
def mod_to_mod_of_integers(A: Value, B: Value, *, fmod: int) -> Value:
    if fmod or not A.dtype.is_float:
        return mod_of_integers(A, B, fmod=fmod)  # type: ignore[no-any-return]
    rest = mod_of_integers(A, B, fmod=1)
    opposite = or_(and_(less(rest, 0), greater(B, 0)), and_(greater(rest, 0), less(B, 0)))
    return where(opposite, rest + B, rest)  # type: ignore[no-any-return]


add_one_way = one_way(add, swapped=lambda: add, consumed_inputs=True)
sub_one_way = one_way(sub, consumed_inputs=True)
mul_one_way = one_way(mul, swapped=lambda: mul, consumed_inputs=True)
div_one_way = one_way(div, consumed_inputs=True)
pow_one_way = one_way(pow_)

for _unary in (absolute, neg, ceil, floor, sqrt, reciprocal, exp, log):
    _unary.until(6, ignored=["consumed_inputs"])


# ----- several inputs -------------------------------------------------------------------------------------------------


def _fold(function: Any, arrays: Sequence[Array]) -> Array:
    """Apply a binary ufunc across the arrays, reusing one buffer where shapes allow."""
    if len(arrays) < 3:
        return functools.reduce(function, arrays)
    result = function(arrays[0], arrays[1])
    for array in arrays[2:]:
        fits = isinstance(result, np.ndarray) and np.broadcast_shapes(result.shape, array.shape) == result.shape
        result = function(result, array, out=result) if fits else function(result, array)
    return result  # type: ignore[no-any-return]


@elementwise("Max", data_movement=True)
def maximum(*data_0):
    """The elementwise maximum of the inputs; NaN if one is NaN."""


maximum.symbolic(lambda *data_0: functools.reduce(of_dims(symbolic.maximum), data_0))


@maximum.numpy
def maximum_numpy(*data_0: Array) -> Array:
    return _fold(np.maximum, data_0)


@elementwise("Min", data_movement=True)
def minimum(*data_0):
    """The elementwise minimum of the inputs; NaN if one is NaN."""


minimum.symbolic(lambda *data_0: functools.reduce(of_dims(symbolic.minimum), data_0))


@minimum.numpy
def minimum_numpy(*data_0: Array) -> Array:
    return _fold(np.minimum, data_0)


def _extreme_gradient(g: Value, y: Value, *data_0: Value) -> tuple[Value, ...]:
    """Split the cotangent equally between the inputs that attain the extremum."""
    if len(data_0) == 1:
        return (g,)
    chosen = [cast(equal(x, y), to=y.dtype) for x in data_0]
    share = g / functools.reduce(add, chosen)
    return tuple(share * c for c in chosen)


def _by_comparing(better: Any) -> Any:
    """Compare 64-bit integers, which have neither a kernel nor a wider dtype."""

    def lowered(*data_0: Value) -> Value | None:
        if len(data_0) == 1 or data_0[0].dtype not in (DType.int64, DType.uint64):
            return None
        return functools.reduce(lambda a, b: where(better(a, b), a, b), data_0)

    return lowered


maximum.lower()(_by_comparing(greater))
minimum.lower()(_by_comparing(less))
maximum.vjp(_extreme_gradient)
minimum.vjp(_extreme_gradient)


@op("Sum", broadcasts=True)
def sum_(*data_0):
    """The elementwise sum of the inputs."""
    if not data_0:
        raise TypeMismatch(f"{sum_.title} has no inputs")
    return functools.reduce(add, data_0)


@sum_.vjp
def sum_vjp(g: Value, y: Value, *data_0: Value) -> tuple[Value, ...]:
    return (g,) * len(data_0)


@op("Mean", broadcasts=True)
def mean(*data_0):
    """The elementwise mean of the inputs."""
    return sum_(*data_0) / len(data_0)


@mean.numpy
def mean_numpy(*data_0: Array) -> Array:
    return _fold(np.add, data_0) / data_0[0].dtype.type(len(data_0))


sum_.numpy(lambda *data_0: _fold(np.add, data_0))

maximum_of_one_shape = one_shape(maximum)
minimum_of_one_shape = one_shape(minimum)
sum_of_one_shape = one_shape(sum_)
mean_of_one_shape = one_shape(mean)


@op("Clip", data_movement=True, broadcasts=True)
def clip(input, min=None, max=None):
    """``input`` clipped to between ``min`` and ``max``; ``max`` wins if it is less than ``min``."""
    bounded = input if min is None else maximum(input, _as_scalar(min))
    return bounded if max is None else minimum(bounded, _as_scalar(max))


def _as_scalar(bound: Value) -> Value:
    return bound if bound.rank in (None, 0) else ops.reshape(bound, [])


clip.until(11, attributes=["min", "max"], defaults={"min": -3.4028234663852886e38, "max": 3.4028234663852886e38})
clip.until(6, defaults={"min": None, "max": None}, ignored=["consumed_inputs"])


clip.requires(shapes(min=" | 1", max=" | 1"))


@clip.numpy
def clip_numpy(input: Array, min: Array | None = None, max: Array | None = None) -> Array:
    if min is not None and max is not None:
        if input.dtype.isbuiltin == 1:
            return np.clip(input, min.reshape(()), max.reshape(()))
        return np.minimum(np.maximum(input, min.reshape(())), max.reshape(()))
    if min is not None:
        return np.maximum(input, min.reshape(()))
    return input if max is None else np.minimum(input, max.reshape(()))


@clip.specialize
def clip_specialize(input: Operand, min: Operand | None = None, max: Operand | None = None) -> Any:
    """For few elements, calling np.clip costs more than its work."""
    few = input.size <= 1 << 12 and input.dtype.isbuiltin == 1
    one = min is not None and max is not None and min.ndim == max.ndim == 0
    return (lambda x, low, high: np.minimum(np.maximum(x, low), high)) if few and one else None


@clip.vjp
def clip_vjp(g: Value, y: Value, input: Value, min: Value | None, max: Value | None) -> tuple[Value | None, ...]:
    """A bound takes the cotangent of elements beyond it; elements equal to a bound keep theirs."""
    zero = constant(np.zeros(()), g.dtype)
    below = above = None
    gradient, to_min, to_max = g, None, None
    if max is not None:
        above = greater(input if min is None else maximum(input, min), max)
        to_max = where(above, g, zero)
        gradient = where(above, zero, gradient)
    if min is not None:
        below = less(input, min)
        to_min = where(below, gradient, zero)
        gradient = where(below, zero, gradient)
    return gradient, to_min, to_max


# ----- functions ------------------------------------------------------------------------------------------------------


@elementwise("Erf", since=9)
def erf(input):
    """The error function: 2 / sqrt(pi) times the integral of exp(-t²) from 0 to ``input``."""


@erf.numpy
def erf_numpy(input: Array) -> Array:
    with np.errstate(all="ignore"):
        if input.dtype.kind in "iu":
            return error_function(input.astype(np.float64)).astype(input.dtype)
        return error_function(input)


@erf.vjp
def erf_vjp(g: Value, y: Value, input: Value) -> Value:
    return g * (2 / math.sqrt(math.pi)) * exp(neg(input * input))


@erf.lower()
def erf_lowering(input: Value) -> Value | None:
    """Erf in float64 within 2e-15, for runtimes that have it only in float32."""
    if input.dtype is not DType.float64:
        return None
    x = where(greater(absolute(input), LAST_DOUBLE), sign(input) * LAST_DOUBLE, input)
    square = x * x
    numerator, denominator = (functools.reduce(lambda sum_, c: sum_ * square + c, reversed(each)) for each in DOUBLE)
    found = x * (numerator / denominator)
    return where(greater(absolute(found), 1), sign(found), found)  # type: ignore[no-any-return]
