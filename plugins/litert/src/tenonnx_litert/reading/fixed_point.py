"""Lookup tables of Sigmoid and Tanh in 16-bit fixed point, as the integer kernels approximate them.

A fixed-point number with ``bits`` integer bits is an int16 times ``2**(bits - 15)``. Results have no integer bits. The
kernels evaluate a polynomial for exp on [-1/4, 0], multiply by one power of e for each higher bit, and divide by Newton's
method; every product is rounded to 16 bits.
"""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np

Array = np.ndarray[Any, np.dtype[np.int64]]

_ONE = 2**15 - 1

#: Weights of the bits above 1/4, as exponents of 2; a set bit multiplies exp by a constant.
_EXPONENTS = range(-2, 5)


@functools.cache
def sigmoid_table(bits: int) -> np.ndarray[Any, np.dtype[np.int16]]:
    """Sigmoid of all int16 inputs, -32768 first; shape (65536,)."""
    x = np.arange(-(2**15), 2**15)
    magnitude = np.where(x > 0, x, _wrapped(-x))
    positive = _shifted(_reciprocal(_exp(_wrapped(-magnitude), bits)), 1)
    return np.where(x == 0, 2**14, np.where(x > 0, positive, _ONE - positive)).astype(np.int16)


@functools.cache
def tanh_table(bits: int) -> np.ndarray[Any, np.dtype[np.int16]]:
    """Tanh of all int16 inputs, -32768 first; shape (65536,)."""
    x = np.arange(-(2**15), 2**15)
    magnitude = _shifted(_reciprocal(_exp(-np.abs(x), bits + 1)) - 2**13, 2)
    return np.where(x == 0, 0, np.sign(x) * magnitude).astype(np.int16)


def _exp(x: Array, bits: int) -> Array:
    """The exponential of numbers up to 0."""
    quarter = 2 ** (13 - bits)
    rest = (x & (quarter - 1)) - quarter
    result = _exp_of_quarter(_shifted(rest, bits))
    for exponent in _EXPONENTS:
        if exponent < bits:
            is_set = (rest - x) & 2 ** (15 - bits + exponent) != 0
            result = np.where(is_set, _product(result, _constant(math.exp(-(2.0**exponent)), 0)), result)
    if bits > 5:
        result = np.where(x < -(2 ** (20 - bits)), 0, result)
    return np.where(x == 0, _ONE, result)


def _exp_of_quarter(x: Array) -> Array:
    """The exponential on [-1/4, 0], by its Taylor polynomial around -1/8."""
    first = _constant(math.exp(-1 / 8), 0)
    x = x + 2**12
    square = _product(x, x)
    cube, fourth = _product(square, x), _product(square, square)
    high = _product(_shifted(fourth, -2) + cube, _constant(1 / 3, 0)) + square
    return _saturated(first + _product(x + _shifted(high, -1), first))


def _reciprocal(x: Array) -> Array:
    """``2 / (1 + x)``, with two integer bits."""
    half = (x + _ONE + 1) // 2
    result = _constant(48 / 17, 2) + _product(half, _constant(-32 / 17, 2))
    for _ in range(3):
        result = result + _shifted(_product(result, 2**13 - _product(half, result)), 2)
    return result


def _constant(number: float, bits: int) -> int:
    """``number`` in 16-bit fixed point, rounded from 32 bits as the kernels do."""
    return (round(number * 2.0 ** (31 - bits)) + 2**15) >> 16


def _product(a: Array, b: Array | int) -> Array:
    """The fixed-point product, rounded to nearest."""
    return (a * b + 2**14) >> 15


def _shifted(x: Array, places: int) -> Array:
    """``x * 2**places``: saturated to int16 if ``places >= 0``, else rounded to nearest, ties away from zero."""
    if places >= 0:
        return _saturated(x << places)
    half = 2 ** (-places - 1)
    return np.sign(x) * ((np.abs(x) + half) >> -places)


def _saturated(x: Array) -> Array:
    return np.clip(x, -(2**15), _ONE)


def _wrapped(x: Array) -> Array:
    return x.astype(np.int16).astype(np.int64)
