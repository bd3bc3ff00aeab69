"""Comparison, logic and bits."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

import tenonnx_standard as ops
from tenonnx.extend import Dim, DType, TypeMismatch, Value, broadcast_types, constant, elementwise, one_of, op
from tenonnx.extend.symbolic import known_lower_bound, subtract
from tenonnx_standard.broadcasting import one_way
from tenonnx_standard.casting import cast
from tenonnx_standard.checking import counted, of_dims

Array = np.ndarray[Any, Any]


# ----- comparison -----------------------------------------------------------------------------------------------------


def _is_less(a: Dim, b: Dim) -> bool | None:
    """Whether a < b; None if unknown."""
    if _at_least(b, a, 1):
        return True
    return False if _at_least(a, b, 0) else None


def _is_equal(a: Dim, b: Dim) -> bool | None:
    if a is None or b is None:
        return None
    if a == b:
        return True
    return False if _at_least(a, b, 1) or _at_least(b, a, 1) else None


def _at_least(a: Dim, b: Dim, by: int) -> bool:
    bound = known_lower_bound(subtract(a, b))
    return bound is not None and bound >= by


def _opposite(answer: bool | None) -> bool | None:
    return None if answer is None else not answer


@elementwise("Equal", result=DType.bool, data_movement=True)
def equal(A, B):
    """Whether elements are equal; NaN equals nothing."""


@elementwise("Less", result=DType.bool, data_movement=True)
def less(A, B):
    """Whether A < B."""


@elementwise("Greater", result=DType.bool, data_movement=True)
def greater(A, B):
    """Whether A > B."""


@op("LessOrEqual", since=12, broadcasts=True, data_movement=True)
def less_or_equal(A, B):
    """Whether A <= B."""
    return or_(less(A, B), equal(A, B)) if A.dtype.is_float else not_(greater(A, B))


@op("GreaterOrEqual", since=12, broadcasts=True, data_movement=True)
def greater_or_equal(A, B):
    """Whether A >= B."""
    return or_(greater(A, B), equal(A, B)) if A.dtype.is_float else not_(less(A, B))


equal.numpy(np.equal)
less.numpy(np.less)
greater.numpy(np.greater)
less_or_equal.numpy(np.less_equal)
greater_or_equal.numpy(np.greater_equal)

equal.symbolic(of_dims(_is_equal))
less.symbolic(of_dims(_is_less))
greater.symbolic(of_dims(lambda a, b: _is_less(b, a)))
less_or_equal.symbolic(of_dims(lambda a, b: _opposite(_is_less(b, a))))
greater_or_equal.symbolic(of_dims(lambda a, b: _opposite(_is_less(a, b))))

for _test in (equal, less, greater, less_or_equal, greater_or_equal):
    _test.vjp(lambda g, y, A, B: (None, None))

equal_one_way = one_way(equal, swapped=lambda: equal)
less_one_way = one_way(less, swapped=lambda: greater)
greater_one_way = one_way(greater, swapped=lambda: less)


@equal.lower()
def equal_lowering(A: Value, B: Value) -> Value | None:
    """Floats were not comparable below opset 11; only NaN is neither below 1 nor above 0."""
    if not A.dtype.is_float:
        return None
    is_different = or_(less(A, B), greater(A, B))
    number = and_(or_(less(A, 1), greater(A, 0)), or_(less(B, 1), greater(B, 0)))
    return and_(number, not_(is_different))


@equal.lower()
def equal_lowering_2(A: Value, B: Value) -> Value | None:
    """Strings were not comparable below opset 19; equal strings have equal indices among the unique ones."""
    if A.dtype is not DType.string:
        return None
    a, b = ops.expand(A, ops.shape(B)), ops.expand(B, ops.shape(A))
    numbers = ops.unique(ops.concat(ops.reshape(a, [-1]), ops.reshape(b, [-1]), axis=0))[2]
    count = ops.size(a)
    return ops.reshape_like(equal(numbers[:count], numbers[count:]), a)


# ----- logic ----------------------------------------------------------------------------------------------------------


@elementwise("And", result=DType.bool)
def and_(A, B):
    """Logical and."""


@elementwise("Or", result=DType.bool)
def or_(A, B):
    """Logical or."""


@elementwise("Xor", result=DType.bool)
def xor(A, B):
    """Logical exclusive or."""


@elementwise("Not", result=DType.bool)
def not_(X):
    """Logical negation."""


not_.lower()(lambda X: equal(X, False))
and_.numpy(np.logical_and)
or_.numpy(np.logical_or)
xor.numpy(np.logical_xor)
not_.numpy(np.logical_not)

and_one_way = one_way(and_, swapped=lambda: and_)
or_one_way = one_way(or_, swapped=lambda: or_)
xor_one_way = one_way(xor, swapped=lambda: xor)


@elementwise("Where", since=9, mixed=("condition",), data_movement=True)
def where(condition, X, Y):
    """X where ``condition`` is true, Y elsewhere."""


@where.numpy
def where_numpy(condition: Array, X: Array, Y: Array) -> Array:
    if condition.size < _LARGE or X.dtype == object or X.dtype.itemsize > 8:
        return np.where(condition, X, Y)
    return _where_bits(condition, X, Y)


#: From this size on, elements are selected by masking bits, without a branch per element.
_LARGE = 1 << 13


def _where_bits(condition: Array, x: Array, y: Array) -> Array:
    """Select elements of ``x`` or ``y`` by masking their bits."""
    bits = np.dtype(f"i{x.dtype.itemsize}")
    mask = condition.astype(bits)
    np.negative(mask, out=mask)
    chosen = (x.view(bits) ^ y.view(bits)) & mask
    chosen ^= y.view(bits)
    return chosen.view(x.dtype)


def _chosen(condition: bool | None, x: Dim, y: Dim) -> Dim:
    if condition is None:
        return x if x is not None and x == y else None
    return x if condition else y


where.symbolic(of_dims(_chosen, 3))


@where.vjp
def where_vjp(g: Value, y: Value, condition: Value, X: Value, Y: Value) -> tuple[None, Value, Value]:
    zero = constant(np.zeros((), g.dtype.numpy), g.dtype)
    return None, where(condition, g, zero), where(condition, zero, g)


@where.lower()
def where_lowering(condition: Value, X: Value, Y: Value) -> Value | None:
    """Without Where, integers are masked and floats gathered, since 0 times infinity is NaN."""
    if X.dtype is DType.bool:
        return or_(and_(condition, X), and_(not_(condition), Y))
    if not X.dtype.is_integer:
        return _gathered(condition, X, Y)
    chosen = cast(condition, to=X.dtype)
    return X * chosen + Y * (1 - chosen)


def _gathered(condition: Value, X: Value, Y: Value) -> Value | None:
    """``Where`` of static shapes as a Gather from both inputs concatenated."""
    known = broadcast_types(where, (condition, X, Y))
    if known is None or not all(isinstance(side, int) for side in known):
        return None
    common: Any = list(known)
    chosen, x, y = (ops.reshape(ops.expand(v, common), [-1]) for v in (cast(condition, to=DType.int64), X, Y))
    count = math.prod(common)
    return ops.reshape(ops.gather(ops.concat(y, x, axis=0), counted(count, where.title) + chosen * count), common)


# ----- bits -----------------------------------------------------------------------------------------------------------


@op("BitwiseAnd", since=18, broadcasts=True)
def bitwise_and(A, B):
    """Bitwise and."""
    return _from_bits(_bits(A) * _bits(B), A.dtype)


@op("BitwiseOr", since=18, broadcasts=True)
def bitwise_or(A, B):
    """Bitwise or."""
    return A + B - bitwise_and(A, B)


@op("BitwiseXor", since=18, broadcasts=True)
def bitwise_xor(A, B):
    """Bitwise exclusive or."""
    return A + B - bitwise_and(A, B) * 2


@op("BitwiseNot", since=18, broadcasts=True)
def bitwise_not(X):
    """Bitwise negation."""
    _check_integers(bitwise_not, X)
    return constant(_ones(X.dtype), X.dtype) - X


bitwise_and.numpy(np.bitwise_and)
bitwise_or.numpy(np.bitwise_or)
bitwise_xor.numpy(np.bitwise_xor)
bitwise_not.numpy(np.bitwise_not)


def _check_integers(op: Any, *inputs: Value) -> None:
    for value in inputs:
        if not value.dtype.is_integer:
            raise TypeMismatch(f"{op.title}: an input is not of integers", given=repr(value))


def _ones(dtype: DType) -> Array:
    """The integer with all bits set."""
    return np.asarray(-1 if dtype.is_signed else (1 << dtype.bits) - 1)


def _weights(dtype: DType) -> Array:
    """Place values of the bits of an integer; negative for the last bit of a signed one."""
    weights = [1 << place for place in range(dtype.bits)]
    if dtype.is_signed:
        weights[-1] = -weights[-1]
    return np.asarray(weights, dtype=np.uint64 if dtype is DType.uint64 else np.int64)


def _bits(x: Value) -> Value:
    """The bits of integers as zeros and ones along a new last axis, by division."""
    _check_integers(bitwise_and, x)
    dtype = DType.uint64 if x.dtype is DType.uint64 else DType.int64
    wide = ops.unsqueeze(cast(x, to=dtype), [x.ndim])
    if not x.dtype.is_signed:
        return _lowest_bit(wide / constant(_weights(x.dtype)))
    # A negative number has the flipped bits of -1 - x, which is not negative.
    negative = cast(less(wide, 0), to=dtype)
    flipped = wide - negative * (wide * 2 + 1)
    low = _lowest_bit(flipped / constant(_weights(x.dtype)[:-1]))
    return ops.concat(low + negative - low * negative * 2, negative, axis=x.ndim)


def _lowest_bit(x: Value) -> Value:
    return x - x / 2 * 2


def _from_bits(bits: Value, dtype: DType) -> Value:
    """Integers from their bits, by a matrix product, since some runtimes sum integers in floats."""
    return cast(ops.matmul(bits, constant(_weights(dtype))), to=dtype)


@op("BitShift", since=11, broadcasts=True)
def bitshift(X, Y, *, direction: str):
    """X shifted by Y bits to the ``LEFT`` or ``RIGHT``; right shifts keep the sign."""
    _check_integers(bitshift, X, Y)
    last = X.dtype.bits - 1
    amount = cast(Y, to=DType.int64)
    outside = or_(less(amount, 0), greater(amount, last))
    factors = constant([(1 << place) for place in range(last + (not X.dtype.is_signed))], X.dtype)
    if direction == "LEFT":
        if X.dtype.is_signed:
            factors = constant([*((1 << place) for place in range(last)), -(1 << last)], X.dtype)
        factor = ops.gather(factors, where(outside, 0, amount))
        return where(outside, 0, X * factor)
    if not X.dtype.is_signed:
        return where(outside, 0, X / ops.gather(factors, where(outside, 0, amount)))
    outside = or_(outside, equal(amount, last))
    negative = less(X, 0)
    magnitude = where(negative, -1 - X, X)
    quotient = where(outside, 0, magnitude / ops.gather(factors, where(outside, 0, amount)))
    return where(negative, -1 - quotient, quotient)


bitshift.requires(one_of(direction=("LEFT", "RIGHT")))


@bitshift.numpy
def bitshift_numpy(X: Array, Y: Array, *, direction: str) -> Array:
    return np.left_shift(X, Y) if direction == "LEFT" else np.right_shift(X, Y)
