"""The gamma function and its relatives, and Bessel functions."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

import tenonnx_standard as ops
from tenonnx.extend import Value
from tenonnx_frontends.numerics import polynomial
from tenonnx_tensorflow.rules import rule
from tenonnx_tensorflow.rules.elementwise import log1p
from tenonnx_tensorflow.tracked_values import number

_LANCZOS = [
    0.99999999999980993227684700473478,
    676.520368121885098567009190444019,
    -1259.13921672240287047156078755283,
    771.3234287776530788486528258894,
    -176.61502916214059906584551354,
    12.507343278686904814458936853,
    -0.13857109526572011689554707,
    9.984369578019570859563e-6,
    1.50563273514931155834e-7,
]


@rule("Lgamma")
def lgamma(node: Any, x: Value) -> Value:
    """By Lanczos's series (1964), and below one half by reflection."""
    one, half, pi = number(1, x), number(0.5, x), number(math.pi, x)
    reflected = ops.less(x, half)
    z = ops.where(reflected, ops.neg(x), ops.sub(x, one))
    total = number(_LANCZOS[0], x)
    for k, each in enumerate(_LANCZOS[1:], 1):
        total = ops.add(total, ops.div(number(each, x), ops.add(z, number(k, x))))
    t = ops.add(z, number(7.5, x))
    logged = ops.add(number(math.log(7.5), x), log1p(node, ops.div(z, number(7.5, x))))
    body = ops.sub(ops.mul(ops.add(z, half), logged), t)
    found = ops.add(ops.add(body, number(math.log(2 * math.pi) / 2, x)), ops.log(total))
    size = ops.absolute(x)
    part = ops.sub(size, ops.floor(size))
    part = ops.where(ops.greater(part, half), ops.sub(one, part), part)
    turned = ops.log(ops.sin(ops.mul(pi, part)))
    mirrored = ops.sub(ops.sub(number(math.log(math.pi), x), turned), found)
    result = ops.where(reflected, ops.where(ops.isinf(turned), ops.neg(turned), mirrored), found)
    return ops.where(ops.isinf(x), number(np.inf, x), result)


@rule("Digamma")
def digamma(node: Any, x: Value) -> Value:
    """By recurrence to where the asymptotic series holds, and below zero by reflection."""
    one, half, pi = number(1, x), number(0.5, x), number(math.pi, x)
    reflected = ops.less(x, half)
    z = ops.where(reflected, ops.sub(one, x), x)
    total = ops.zeros_like(z)
    for _ in range(10):
        small = ops.less(z, number(10, x))
        total = ops.where(small, ops.sub(total, ops.reciprocal(z)), total)
        z = ops.where(small, ops.add(z, one), z)
    square = ops.reciprocal(ops.mul(z, z))
    series = polynomial([-691 / 32760, 1 / 132, -1 / 240, 1 / 252, -1 / 120, 1 / 12, 0.0], square)
    found = ops.add(total, ops.sub(ops.sub(ops.log(z), ops.div(half, z)), series))
    is_pole = ops.and_(reflected, ops.equal(x, ops.floor(x)))
    fraction = ops.sub(x, ops.floor(x))
    mirrored = ops.sub(found, ops.div(pi, ops.tan(ops.mul(pi, fraction))))
    return ops.where(is_pole, number(np.nan, x), ops.where(reflected, mirrored, found))


@rule("BesselI0e", "BesselI0", "BesselI1e", "BesselI1")
def bessel(node: Any, x: Value) -> Value:
    """Modified Bessel functions by the fits of Abramowitz and Stegun, 9.8.1 to 9.8.4, in float32 precision."""
    order = 1 if "I1" in node.op else 0
    size = ops.absolute(x)
    t = ops.div(size, number(3.75, x))
    square = ops.mul(t, t)
    near = polynomial(_BESSEL_NEAR[order], square)
    if order:
        near = ops.mul(near, size)
    inverse = ops.reciprocal(ops.maximum(t, number(1, x)))
    far = ops.div(polynomial(_BESSEL_FAR[order], inverse), ops.sqrt(ops.maximum(size, number(1, x))))
    scaled = ops.where(ops.less(size, number(3.75, x)), ops.mul(near, ops.exp(ops.neg(size))), far)
    found = scaled if node.op.endswith("e") else ops.mul(scaled, ops.exp(size))
    return ops.mul(found, ops.sign(x)) if order else found


_BESSEL_NEAR = (
    [0.0045813, 0.0360768, 0.2659732, 1.2067492, 3.0899424, 3.5156229, 1.0],
    [0.00032411, 0.00301532, 0.02658733, 0.15084934, 0.51498869, 0.87890594, 0.5],
)
_BESSEL_FAR = (
    [0.00392377, -0.01647633, 0.02635537, -0.02057706, 0.00916281, -0.00157565, 0.00225319, 0.01328592, 0.39894228],
    [-0.00420059, 0.01787654, -0.02895312, 0.02282967, -0.01031555, 0.00163801, -0.00362018, -0.03988024, 0.39894228],
)
