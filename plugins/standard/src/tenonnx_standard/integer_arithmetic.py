"""Powers, remainders and comparisons of integers, for targets that lack them or have them only for floats."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tenonnx.extend import DType, Op, Value
from tenonnx_standard.casting import cast
from tenonnx_standard.logic import and_, equal, greater, less, not_, or_, where, xor
from tenonnx_standard.math import maximum, mod_of_integers, pow_


@pow_.lower()
def pow_lowering(X: Value, Y: Value) -> Value | None:
    """Square and multiply, once per bit of the exponent that matters."""
    if not (X.dtype.is_integer and Y.dtype.is_integer):
        return None
    result: Any = 1
    base, exponent = X, maximum(Y, 0)
    for _ in range((X.dtype.bits - 1).bit_length()):
        half = exponent / 2
        result = where(equal(exponent - half * 2, 1), base * result, result)
        base, exponent = base * base, half
    # What remains is a power of 0, 1 or -1, or overflows.
    result = where(greater(exponent, 0), base * result, result)
    if not Y.dtype.is_signed:
        return result  # type: ignore[no-any-return]
    inverse = cast(equal(X, 1), to=X.dtype)
    if X.dtype.is_signed:
        inverse = where(equal(X, -1), where(equal(Y - Y / 2 * 2, 0), 1, X), inverse)
    return where(less(Y, 0), inverse, result)  # type: ignore[no-any-return]


@mod_of_integers.lower()
def mod_of_integers_lowering(A: Value, B: Value, *, fmod: int) -> Value | None:
    """The remainder of the division, with the sign of A; B is added if that has the other sign."""
    if not A.dtype.is_integer:
        return None
    rest = A - A / B * B
    if fmod or not A.dtype.is_signed:
        return rest  # type: ignore[no-any-return]
    opposite = and_(not_(equal(rest, 0)), xor(less(rest, 0), less(B, 0)))
    return where(opposite, rest + B, rest)  # type: ignore[no-any-return]


def _in_halves(op: Op) -> Callable[[Value, Value], Value | None]:
    """Compare 64-bit integers where only floats are comparable: first the upper halves, then the lower ones."""

    def in_floats(a: Value, b: Value) -> Value:
        return op(cast(a, to=DType.float64), cast(b, to=DType.float64))  # type: ignore[no-any-return]

    def lowered(A: Value, B: Value) -> Value | None:
        if not A.dtype.is_integer:
            return None
        if A.dtype.bits < 64:
            return in_floats(A, B)
        (a, low_a), (b, low_b) = ((x / (1 << 32), x - x / (1 << 32) * (1 << 32)) for x in (A, B))
        same = equal(cast(a, to=DType.int64), cast(b, to=DType.int64))
        return or_(in_floats(a, b), and_(same, in_floats(low_a, low_b)))  # type: ignore[no-any-return]

    return lowered


less.lower()(_in_halves(less))
greater.lower()(_in_halves(greater))


@equal.lower()
def equal_lowering(A: Value, B: Value) -> Value | None:
    """Compare uint64 as int64 with the same bits, which all versions of Equal support."""
    if A.dtype is not DType.uint64:
        return None
    return equal(cast(A, to=DType.int64), cast(B, to=DType.int64))  # type: ignore[no-any-return]
