"""Gamma and related functions, and modified Bessel functions, in terms of ops."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable

import numpy as np

import tenonnx_standard as ops
from tenonnx.extend import DType, Value
from tenonnx_frontends.numerics import log1p, polynomial, scalar
from tenonnx_frontends.special_functions import BERNOULLI, DIGAMMA, LANCZOS


def _in_float32(function: Callable[..., Value]) -> Callable[..., Value]:
    """Compute a function of half precision in float32."""

    @functools.wraps(function)
    def computed(*arguments: Value) -> Value:
        dtype = arguments[0].dtype
        if dtype.numpy.itemsize >= 4:
            return function(*arguments)
        return ops.cast(function(*(ops.cast(x, to=DType.float32) for x in arguments)), to=dtype)

    return computed


@_in_float32
def lgamma(x: Value) -> Value:
    """log |Γ(x)| by the series of C. Lanczos (1964) with g = 7, and by reflection below one half."""
    one, half = scalar(1, x), scalar(0.5, x)
    reflected = ops.less(x, half)
    z = ops.where(reflected, ops.neg(x), ops.sub(x, one))
    total = scalar(LANCZOS[0], x)
    for k, each in enumerate(LANCZOS[1:], 1):
        total = ops.add(total, ops.div(scalar(each, x), ops.add(z, scalar(k, x))))
    log_t = ops.add(scalar(math.log(7.5), x), log1p(ops.div(z, scalar(7.5, x))))
    body = ops.sub(ops.add(z, half), ops.div(ops.add(z, scalar(7.5, x)), log_t))
    found = ops.add(ops.mul(body, log_t), ops.add(scalar(math.log(2 * math.pi) / 2, x), ops.log(total)))
    size = ops.absolute(x)
    part = ops.sub(size, ops.floor(size))
    part = ops.where(ops.greater(part, half), ops.sub(one, part), part)
    sine = ops.log(ops.sin(ops.mul(scalar(math.pi, x), part)))
    mirrored = ops.sub(ops.sub(scalar(math.log(math.pi), x), sine), found)
    result = ops.where(reflected, ops.where(ops.isinf(sine), ops.neg(sine), mirrored), found)
    return ops.where(ops.isinf(x), scalar(np.inf, x), result)


@_in_float32
def digamma(x: Value) -> Value:
    """The derivative of lgamma, by reflection below one half. NaN at 0 and the negative integers."""
    one, half, pi = scalar(1, x), scalar(0.5, x), scalar(math.pi, x)
    reflected = ops.less(x, half)
    found = digamma_above_zero(ops.where(reflected, ops.sub(one, x), x))
    turned = ops.sub(x, ops.floor(ops.add(x, half)))
    cosine = ops.sin(ops.mul(pi, ops.sub(half, ops.absolute(turned))))  # few runtimes support Cos and Tan in float64
    mirrored = ops.sub(found, ops.div(ops.mul(pi, cosine), ops.sin(ops.mul(pi, turned))))
    is_pole = ops.and_(reflected, ops.equal(x, ops.floor(x)))
    return ops.where(is_pole, scalar(np.nan, x), ops.where(reflected, mirrored, found))


def digamma_above_zero(x: Value) -> Value:
    """digamma of positive numbers: by recurrence up to 10, then by its asymptotic series."""
    one, total = scalar(1, x), ops.zeros_like(x)
    for _ in range(10):
        small = ops.less(x, scalar(10, x))
        total = ops.where(small, ops.sub(total, ops.reciprocal(x)), total)
        x = ops.where(small, ops.add(x, one), x)
    series = polynomial(DIGAMMA, ops.reciprocal(ops.mul(x, x)))
    return ops.add(total, ops.sub(ops.sub(ops.log(x), ops.div(scalar(0.5, x), x)), series))


@_in_float32
def zeta(x: Value, q: Value) -> Value:
    """Hurwitz zeta function: ten terms, and the Euler-Maclaurin formula for the remainder."""
    one, zero = scalar(1, x), scalar(0, x)
    s = ops.maximum(x, scalar(1 + float(np.finfo(x.dtype.numpy).eps), x))
    start = ops.where(ops.greater(q, zero), q, one)
    total = ops.pow_(start, ops.neg(s))
    for k in range(1, 10):
        total = ops.add(total, ops.pow_(ops.add(start, scalar(k, x)), ops.neg(s)))
    w = ops.add(start, scalar(10, x))
    last = ops.pow_(w, ops.neg(s))
    total = ops.add(total, ops.add(ops.div(ops.mul(last, w), ops.sub(s, one)), ops.mul(last, scalar(0.5, x))))
    factor, square = ops.div(ops.mul(s, last), w), ops.mul(w, w)
    for k, number in enumerate(BERNOULLI):
        total = ops.add(total, ops.mul(scalar(number, x), factor))
        rising = ops.mul(ops.add(s, scalar(2 * k + 1, x)), ops.add(s, scalar(2 * k + 2, x)))
        factor = ops.div(ops.mul(factor, rising), square)
    poles = ops.where(ops.equal(q, ops.floor(q)), scalar(np.inf, x), scalar(np.nan, x))
    found = ops.where(ops.greater(q, zero), total, poles)
    found = ops.where(ops.equal(x, one), scalar(np.inf, x), found)
    return ops.where(ops.less(x, one), scalar(np.nan, x), found)


@_in_float32
def polygamma(m: Value, x: Value) -> Value:
    """The m-th derivative of digamma for an integer m, by the Hurwitz zeta function."""
    order = ops.add(m, scalar(1, m))
    is_even = ops.equal(ops.mod(m, scalar(2, m), fmod=1), scalar(0, m))
    size = ops.mul(ops.exp(lgamma(order)), zeta(order, x))
    return ops.where(ops.equal(m, scalar(0, m)), digamma(x), ops.where(is_even, ops.neg(size), size))


@_in_float32
def bessel_i0e(x: Value) -> Value:
    """exp(-|x|) I0(x)."""
    return _scaled_bessel(0, x)


@_in_float32
def bessel_i1e(x: Value) -> Value:
    """exp(-|x|) I1(x)."""
    return ops.mul(ops.sign(x), _scaled_bessel(1, x))


def _scaled_bessel(order: int, x: Value) -> Value:
    """exp(-|x|) |I(x)|: the power series near zero, the asymptotic series elsewhere."""
    border, terms, beyond = (30.0, 80, 25) if x.dtype is DType.float64 else (12.0, 40, 12)
    size = ops.absolute(x)
    near, far = ops.minimum(size, scalar(border, x)), ops.maximum(size, scalar(border, x))
    part = ops.div(near, scalar(border, x))
    inner = polynomial(_near_zero(order, border, terms), ops.mul(part, part))
    inner = ops.mul(ops.mul(inner, ops.exp(ops.neg(near))), ops.mul(near, scalar(0.5, x)) if order else scalar(1, x))
    outer = polynomial(_far_away(order, border, beyond), ops.div(scalar(border, x), far))
    outer = ops.div(outer, ops.sqrt(ops.mul(far, scalar(2 * math.pi, x))))
    return ops.where(ops.less(size, scalar(border, x)), inner, outer)


def _near_zero(order: int, border: float, terms: int) -> list[float]:
    """Coefficients of I(x) / (x / 2)^order in (x / border)², highest power first."""
    found = [1.0]
    for k in range(1, terms + 1):
        found.append(found[-1] * (border / 2) ** 2 / (k * (k + order)))
    return found[::-1]


def _far_away(order: int, border: float, terms: int) -> list[float]:
    """Coefficients of I(x) √(2πx) / exp(x) in border / x, highest power first."""
    found = [1.0]
    for k in range(1, terms + 1):
        found.append(-found[-1] * (4 * order * order - (2 * k - 1) ** 2) / (8 * k * border))
    return found[::-1]
