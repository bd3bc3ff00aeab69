"""Elementary and special functions in terms of ops, for framework operators that ONNX lacks."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

import tenonnx_standard as ops
from tenonnx.extend import DType, Value, constant
from tenonnx_frontends.special_functions import (
    ERFC_ABOVE,
    ERFC_BELOW,
    ERFC_FAR_ABOVE,
    ERFC_FAR_BELOW,
    ERFINV_FAR,
    ERFINV_NEAR,
)


def scalar(number: float, like: Value) -> Value:
    """A scalar with the element type of a value."""
    return constant(np.asarray(number, like.dtype.numpy))


def polynomial(coefficients: Sequence[float], x: Value) -> Value:
    """The polynomial with these coefficients, highest power first, by Horner's rule."""
    total = scalar(coefficients[0], x)
    for each in coefficients[1:]:
        total = ops.add(ops.mul(total, x), scalar(each, x))
    return total


def log1p(x: Value) -> Value:
    """log(1 + x) as log(u) x / (u - 1) with the rounded u = 1 + x, which is accurate for small x (W. Kahan)."""
    one = scalar(1, x)
    above = ops.add(x, one)
    rest = ops.sub(above, one)
    plain = ops.or_(ops.equal(rest, scalar(0, x)), ops.equal(above, scalar(np.inf, x)))
    right = ops.mul(ops.log(above), ops.div(x, ops.where(plain, one, rest)))
    return ops.where(plain, x, right)


def expm1(x: Value) -> Value:
    """exp(x) - 1; near zero as tanh(x / 2) (exp(x) + 1), which is accurate for small x."""
    half = ops.tanh(ops.div(x, scalar(2, x)))
    raised = ops.exp(x)
    near = ops.less(ops.absolute(x), scalar(0.5, x))
    return ops.where(near, ops.mul(half, ops.add(raised, scalar(1, x))), ops.sub(raised, scalar(1, x)))


def erfc(x: Value) -> Value:
    """1 - erf(x); where that cancels, by a rational fit of exp(x²) erfc(x) (W. J. Cody, 1969)."""
    wide = ops.cast(x, to=DType.float32) if x.dtype.numpy.itemsize < 4 else x
    size, one = ops.absolute(wide), scalar(1, wide)
    near = ops.less(size, scalar(0.5, wide))
    middle = _ratio(size, ERFC_ABOVE, ERFC_BELOW)
    inverse = ops.reciprocal(ops.where(near, one, ops.mul(size, size)))
    correction = ops.mul(inverse, _ratio(inverse, ERFC_FAR_ABOVE, ERFC_FAR_BELOW))
    far = ops.div(ops.sub(scalar(1 / math.sqrt(math.pi), wide), correction), ops.maximum(size, scalar(0.5, wide)))
    factor = ops.where(ops.less(size, scalar(4, wide)), middle, far)
    tail = ops.mul(ops.exp(ops.neg(ops.mul(wide, wide))), factor)
    tail = ops.where(ops.isinf(size), scalar(0, wide), tail)
    signed = ops.where(ops.less(wide, scalar(0, wide)), ops.sub(scalar(2, wide), tail), tail)
    result = ops.where(near, ops.sub(one, ops.erf(wide)), signed)
    return result if wide is x else ops.cast(result, to=x.dtype)


def _ratio(x: Value, above: Sequence[float], below: Sequence[float]) -> Value:
    return ops.div(polynomial(above, x), polynomial(below, x))


def erfinv(x: Value) -> Value:
    """The inverse of erf: two polynomials in log(1 - x²) (M. Giles, 2012), refined by Newton steps in float64."""
    short = x if x.dtype is DType.float32 else ops.cast(x, to=DType.float32)
    w = ops.neg(log1p(ops.neg(ops.mul(short, short))))
    near = polynomial(ERFINV_NEAR, ops.sub(w, scalar(2.5, w)))
    far = polynomial(ERFINV_FAR, ops.sub(ops.sqrt(ops.maximum(w, scalar(5, w))), scalar(3, w)))
    found = ops.mul(ops.where(ops.less(w, scalar(5, w)), near, far), short)
    found = found if short is x else ops.cast(found, to=x.dtype)
    size, one = ops.absolute(x), scalar(1, x)
    if x.dtype is DType.float64:
        for _ in range(3):
            slope = ops.mul(scalar(2 / math.sqrt(math.pi), x), ops.exp(ops.neg(ops.mul(found, found))))
            tail = ops.mul(ops.sign(x), ops.sub(ops.sub(one, size), erfc(ops.absolute(found))))
            wrong = ops.where(ops.less(size, scalar(0.5, x)), ops.sub(ops.erf(found), x), tail)
            found = ops.sub(found, ops.div(wrong, slope))
    edge = ops.where(ops.equal(size, one), ops.mul(x, scalar(np.inf, x)), found)
    return ops.where(ops.greater(size, one), scalar(np.nan, x), edge)


def ndtri(x: Value) -> Value:
    """The quantile function of the normal distribution; Newton steps in the tails, where 2x - 1 cancels."""
    one, half = scalar(1, x), scalar(0.5, x)
    is_above = ops.greater(x, half)
    tail = ops.where(is_above, ops.sub(one, x), x)
    found = ops.mul(erfinv(ops.sub(ops.mul(tail, scalar(2, x)), one)), scalar(math.sqrt(2), x))
    for _ in range(2):
        mass = ops.mul(half, erfc(ops.mul(found, scalar(-1 / math.sqrt(2), x))))
        density = ops.mul(
            ops.exp(ops.mul(scalar(-0.5, x), ops.mul(found, found))), scalar(1 / math.sqrt(2 * math.pi), x)
        )
        better = ops.sub(found, ops.div(ops.sub(mass, tail), density))
        found = ops.where(ops.or_(ops.isinf(found), ops.equal(density, scalar(0, x))), found, better)
    return ops.where(is_above, ops.neg(found), found)


def einsum(equation: str, *values: Value) -> Value:
    """``ops.einsum``, extended to ellipses of different ranks, which broadcast as in numpy.

    ONNX requires equal ranks, so axes of length 1 are prepended.
    """
    terms = equation.replace(" ", "").partition("->")[0].split(",")
    covered = {
        k: value.ndim - len(term) + len("...")
        for k, (term, value) in enumerate(zip(terms, values, strict=True))
        if "..." in term
    }
    longest = max(covered.values(), default=0)
    padded = list(values)
    for k, count in covered.items():
        first = terms[k].index("...")
        if count < longest:
            padded[k] = ops.unsqueeze(values[k], list(range(first, first + longest - count)))
    return ops.einsum(*padded, equation=equation)
