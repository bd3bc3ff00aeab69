"""Complex numbers as pairs of a real and an imaginary part, over ops.

Every function takes and returns pairs of values of equal shape and floating-point type; real results are one value.
"""

from __future__ import annotations

from collections.abc import Sequence

import tenonnx_standard as ops
from tenonnx.extend import Value
from tenonnx_frontends.numerics import scalar

Pair = tuple[Value, Value]


def conjugate(z: Sequence[Value]) -> Pair:
    """The complex conjugate."""
    return z[0], ops.neg(z[1])


def product(a: Sequence[Value], b: Sequence[Value]) -> Pair:
    """The product a b."""
    return ops.sub(ops.mul(a[0], b[0]), ops.mul(a[1], b[1])), ops.add(ops.mul(a[0], b[1]), ops.mul(a[1], b[0]))


def quotient(a: Sequence[Value], b: Sequence[Value]) -> Pair:
    """The quotient a / b, with b scaled by its larger part, so that squares do not overflow."""
    longest = ops.maximum(ops.absolute(b[0]), ops.absolute(b[1]))
    scale = ops.where(ops.equal(longest, scalar(0, longest)), scalar(1, longest), longest)
    scaled = ops.div(b[0], scale), ops.div(b[1], scale)
    size = ops.add(ops.mul(scaled[0], scaled[0]), ops.mul(scaled[1], scaled[1]))
    real, imaginary = product(a, conjugate(scaled))
    return ops.div(ops.div(real, size), scale), ops.div(ops.div(imaginary, size), scale)


def magnitude(z: Sequence[Value]) -> Value:
    """|z|, scaled by its larger part, so that squares do not overflow."""
    a, b = ops.absolute(z[0]), ops.absolute(z[1])
    most, least = ops.maximum(a, b), ops.minimum(a, b)
    ratio = ops.div(least, ops.where(ops.equal(most, scalar(0, most)), scalar(1, most), most))
    return ops.mul(most, ops.sqrt(ops.add(scalar(1, most), ops.mul(ratio, ratio))))


def exponential(z: Sequence[Value]) -> Pair:
    """exp(z)."""
    size = ops.exp(z[0])
    return ops.mul(size, ops.cos(z[1])), ops.mul(size, ops.sin(z[1]))


def equal(a: Sequence[Value], b: Sequence[Value]) -> Value:
    """Whether both parts are equal, as booleans."""
    return ops.and_(ops.equal(a[0], b[0]), ops.equal(a[1], b[1]))
