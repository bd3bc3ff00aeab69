"""Lowerings of elementary functions to others."""

from __future__ import annotations

import math

import numpy as np

import tenonnx_standard as ops
from tenonnx.extend import DType
from tenonnx_standard.lowerings.registry import like, lowering, of_floats, unless


@lowering(ops.exp, "rounding")
def exp_by_pow(X):
    """Off by 32 ulps, since e is rounded."""
    return ops.pow_(like(X, math.e), X)


@lowering(ops.sin, "finite")
def sin_by_cos(X):
    return ops.cos(ops.sub(X, like(X, math.pi / 2)))


@lowering(ops.cos, "finite")
def cos_by_sin(X):
    return ops.sin(ops.add(X, like(X, math.pi / 2)))


@lowering(ops.tan, "rounding")
def tan_by_sin_and_cos(X):
    """Off by 4 ulps."""
    return ops.div(ops.sin(X), ops.cos(X))


@lowering(ops.sinh, "finite")
def sinh_by_exp(X):
    return ops.mul(ops.sub(ops.exp(X), ops.exp(ops.neg(X))), like(X, 0.5))


@lowering(ops.cosh, "finite")
def cosh_by_exp(X):
    return ops.mul(ops.add(ops.exp(X), ops.exp(ops.neg(X))), like(X, 0.5))


@lowering(ops.asinh, "finite")
def asinh_by_log(X):
    a = ops.absolute(X)
    root = ops.sqrt(ops.add(ops.mul(a, a), like(X, 1)))
    return ops.mul(ops.sign(X), ops.log(ops.add(a, root)))


@lowering(ops.acosh, "finite")
def acosh_by_log(X):
    root = ops.sqrt(ops.sub(ops.mul(X, X), like(X, 1)))
    return ops.log(ops.add(X, root))


@lowering(ops.atanh, "finite")
def atanh_by_log(X):
    one = like(X, 1)
    return ops.mul(ops.log(ops.div(ops.add(one, X), ops.sub(one, X))), like(X, 0.5))


@lowering(ops.atan, "finite")
def atan_by_asin(X):
    return ops.asin(ops.div(X, ops.sqrt(ops.add(ops.mul(X, X), like(X, 1)))))


@lowering(ops.asin, "finite")
def asin_by_atan(X):
    return ops.atan(ops.div(X, ops.sqrt(ops.sub(like(X, 1), ops.mul(X, X)))))


@lowering(ops.acos, "finite")
def acos_by_asin(X):
    return ops.sub(like(X, math.pi / 2), ops.asin(X))


#: Above this, the error function is 1 in float32.
_LAST = 4.0

#: Degree of the Chebyshev polynomial in the square of the argument.
_DEGREE = 18


@lowering(ops.erf, "approximate")
def erf_by_polynomial(input):
    """Within 2e-6, by Clenshaw summation of a Chebyshev polynomial in the square."""
    unless(input.dtype not in (DType.float32, DType.float16))

    def quotient(t):
        root = np.sqrt((t + 1) / 2) * _LAST
        return np.array([math.erf(z) / z if z else 2 / math.sqrt(math.pi) for z in root])

    factors = np.polynomial.chebyshev.chebinterpolate(quotient, _DEGREE)
    x = ops.minimum(ops.maximum(input, like(input, -_LAST)), like(input, _LAST))
    t = ops.sub(ops.mul(ops.mul(x, x), like(x, 2 / _LAST**2)), like(x, 1))
    twice = ops.add(t, t)
    later, sum_ = None, like(x, factors[-1])
    for factor in factors[-2:0:-1]:
        product = ops.add(ops.mul(twice, sum_), like(x, factor))
        later, sum_ = sum_, product if later is None else ops.sub(product, later)
    whole = ops.sub(ops.add(ops.mul(t, sum_), like(x, factors[0])), later)
    return ops.mul(x, whole)


@lowering(ops.erf, "approximate")
def erf_by_exp(input):
    """Within 1e-6 (Abramowitz and Stegun, 7.1.26)."""
    of_floats(input)
    a = ops.absolute(input)
    t = ops.div(like(a, 1), ops.add(ops.mul(a, like(a, 0.3275911)), like(a, 1)))
    sum_ = like(a, 1.061405429)
    for factor in (-1.453152027, 1.421413741, -0.284496736, 0.254829592):
        sum_ = ops.add(ops.mul(sum_, t), like(a, factor))
    tail = ops.mul(ops.mul(sum_, t), ops.exp(ops.neg(ops.mul(a, a))))
    return ops.mul(ops.sign(input), ops.sub(like(a, 1), tail))
