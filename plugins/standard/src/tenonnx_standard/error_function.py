"""The error function on arrays, vectorized and accurate to the last few digits.

In float32 it is tanh(x r(x²)) and in float64 x r(x²), with r a rational function. Its coefficients interpolate the
exact function at Chebyshev points (float64) or minimize the largest relative error (float32). All are positive, so that
evaluation has no cancellation. The largest relative errors are about 3e-7 and 1.4e-15.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tenonnx_standard.scalars import scalar

Array = np.ndarray[Any, Any]

#: Elements per block, so that all intermediates stay in the cache.
_BLOCK = 1 << 14

_SINGLE = (
    [1.12837922573089600, 0.27980682253837585, 0.04264654964208603, 0.0021782810799777508],
    [1.0, 0.15689256787300110, 0.02368992008268833, 0.00032492418540641665],
)

#: Coefficients of the numerator and the denominator, by ascending powers, in float64.
DOUBLE = (
    [
        1.1283791670955126,
        0.2190711002961796,
        0.06588467763279268,
        0.006820893033320831,
        0.000847728392049058,
        5.5993613991197265e-05,
        3.8320782923273085e-06,
        1.6499065895126586e-07,
        6.56380178232615e-09,
        1.6489588642948273e-10,
        3.2077895366552193e-12,
        2.158054190533741e-14,
        1.5258377618559163e-17,
    ],
    [
        1.0,
        0.5274800410043694,
        0.13421545562774576,
        0.021844863980097506,
        0.002540774456141817,
        0.00022320608615462655,
        1.5237117822867028e-05,
        8.168336578023048e-07,
        3.4182662836794576e-08,
        1.0858310624441565e-09,
        2.4411476401522144e-11,
        3.2061712031854074e-13,
        8.591654145793007e-16,
    ],
)

#: Above this, the error function is 1 in float64.
LAST_DOUBLE = 5.93


def error_function(x: Array) -> Array:
    """erf of every element, in the dtype of ``x``."""
    if x.dtype == np.float64:
        return _in_blocks(x, _double)
    if x.dtype == np.float32:
        return _in_blocks(x, _single)
    return _in_blocks(x.astype(np.float32), _single).astype(x.dtype)


def _in_blocks(x: Array, compute: Callable[[Array, Array, Array, Array], None]) -> Array:
    result = np.empty(x.shape, x.dtype)
    source, target = np.ascontiguousarray(x).reshape(-1), result.reshape(-1)
    square, denominator = np.empty((2, min(_BLOCK, source.size)), x.dtype)
    for start in range(0, source.size, _BLOCK):
        block, out = source[start : start + _BLOCK], target[start : start + _BLOCK]
        compute(block, out, square[: block.size], denominator[: block.size])
    return result


def _single(x: Array, out: Array, square: Array, denominator: Array) -> None:
    bounded = np.minimum(np.maximum(x, scalar(-6, x.dtype)), scalar(6, x.dtype))
    _quotient(_SINGLE, bounded, out, square, denominator)
    np.tanh(out, out=out)


def _double(x: Array, out: Array, square: Array, denominator: Array) -> None:
    bounded = np.minimum(np.maximum(x, scalar(-LAST_DOUBLE, x.dtype)), scalar(LAST_DOUBLE, x.dtype))
    _quotient(DOUBLE, bounded, out, square, denominator)
    np.clip(out, -1.0, 1.0, out=out)


def _quotient(
    coefficients: tuple[Sequence[float], Sequence[float]], x: Array, out: Array, square: Array, denominator: Array
) -> None:
    """x times a rational function of x²."""
    np.multiply(x, x, out=square)
    _polynomial(coefficients[0], square, out)
    _polynomial(coefficients[1], square, denominator)
    out /= denominator
    out *= x


def _polynomial(coefficients: Sequence[float], x: Array, out: Array) -> None:
    np.multiply(x, scalar(coefficients[-1], x.dtype), out=out)
    for coefficient in coefficients[-2:0:-1]:
        out += scalar(coefficient, x.dtype)
        out *= x
    out += scalar(coefficients[0], x.dtype)
