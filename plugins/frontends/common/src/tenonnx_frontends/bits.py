"""Bit casts by arithmetic, since ONNX has no BitCast below opset 26."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

import tenonnx_standard as ops
from tenonnx.extend import DType, Value, constant
from tenonnx_frontends.numerics import scalar


class Format(NamedTuple):
    """A float format: fraction bits, exponent bits, and the type in which they are computed."""

    fraction: int
    exponent: int
    wide: DType

    @property
    def bias(self) -> int:
        return (1 << self.exponent - 1) - 1

    @property
    def last(self) -> int:
        """The biased exponent of infinity and NaN."""
        return (1 << self.exponent) - 1


#: Float formats whose bits can be computed.
FORMATS = {
    DType.float32: Format(23, 8, DType.float32),
    DType.float64: Format(52, 11, DType.float64),
    DType.float16: Format(10, 5, DType.float32),
    DType.bfloat16: Format(7, 8, DType.float32),
}


def _number(number: int) -> Value:
    return constant(np.asarray(number, np.int64))


def to_float(x: Value, dtype: DType) -> Value:
    """Floats with the bits of these integers."""
    form = FORMATS[dtype]
    bits = form.fraction + form.exponent + 1
    widened = ops.cast(x, to=DType.int64)
    if bits == 64:  # the sign bit is that of the integer
        negative = ops.less(widened, _number(0))
        widened = ops.where(negative, ops.add(ops.add(widened, _number(np.iinfo(np.int64).max)), _number(1)), widened)
    else:
        widened = ops.mod(widened, _number(1 << bits))
        negative = ops.greater_or_equal(widened, _number(1 << bits - 1))
        widened = ops.mod(widened, _number(1 << bits - 1))
    exponent, fraction = ops.div(widened, _number(1 << form.fraction)), ops.mod(widened, _number(1 << form.fraction))
    steps = np.ldexp(1.0, np.maximum(np.arange(form.last + 1), 1) - form.bias - form.fraction)
    steps[form.last] = np.inf
    step = ops.gather(constant(steps.astype(form.wide.numpy)), exponent, axis=0)
    normal = ops.greater(exponent, _number(0))
    whole = ops.add(fraction, ops.mul(ops.cast(normal, to=DType.int64), _number(1 << form.fraction)))
    size = ops.mul(ops.cast(whole, to=form.wide), step)
    special = ops.and_(ops.equal(exponent, _number(form.last)), ops.greater(fraction, _number(0)))
    size = ops.where(special, scalar(np.nan, size), size)
    result = ops.where(negative, ops.neg(size), size)
    return result if dtype is form.wide else ops.cast(result, to=dtype)


def to_integer(x: Value, dtype: DType) -> Value:
    """Integers with the bits of these floats."""
    form = FORMATS[x.dtype]
    wide = x if x.dtype is form.wide else ops.cast(x, to=form.wide)
    size, zero = ops.absolute(wide), scalar(0, wide)
    is_zero = ops.equal(size, zero)
    negative = ops.less(ops.where(is_zero, ops.reciprocal(wide), wide), zero)
    regular = ops.not_(ops.or_(ops.or_(ops.isnan(size), ops.isinf(size)), is_zero))
    size = ops.where(regular, size, scalar(1, wide))
    lowest = 1 - form.bias
    guess = ops.cast(ops.floor(ops.div(ops.log(size), scalar(np.log(2.0), size))), to=DType.int64)
    guess = ops.maximum(ops.minimum(guess, _number(form.bias)), _number(lowest))
    powers = constant(np.append(np.ldexp(1.0, np.arange(lowest - 1, form.bias + 1)), np.inf).astype(form.wide.numpy))

    def power(exponent: Value) -> Value:
        return ops.gather(powers, ops.sub(exponent, _number(lowest - 1)), axis=0)

    less = ops.cast(ops.less(size, power(guess)), to=DType.int64)
    more = ops.cast(ops.greater_or_equal(size, power(ops.add(guess, _number(1)))), to=DType.int64)
    exponent = ops.maximum(ops.add(ops.sub(guess, less), more), _number(lowest))
    share = ops.mul(ops.div(size, power(exponent)), scalar(float(1 << form.fraction), size))
    whole = ops.cast(share, to=DType.int64)  # below 1 << fraction for subnormal numbers
    shifted = ops.mul(ops.sub(exponent, _number(lowest)), _number(1 << form.fraction))
    result = ops.add(shifted, whole)
    top = form.last << form.fraction
    special = ops.where(
        ops.isnan(wide), _number(top | 1 << form.fraction - 1), ops.where(is_zero, _number(0), _number(top))
    )
    result = ops.where(regular, result, special)
    bits = form.fraction + form.exponent + 1
    sign = _number(np.iinfo(np.int64).min if bits == 64 else 1 << bits - 1)
    result = ops.where(negative, ops.add(result, sign), result)
    return result if dtype is DType.int64 else ops.cast(result, to=dtype)


def bitcast(x: Value, to: DType) -> Value:
    """Reinterpret bits as another element type of the same width; NaN gets its default bits."""
    if x.dtype is to:
        return x
    if x.dtype.is_integer and to.is_integer:
        return ops.cast(x, to=to)
    if x.dtype.is_integer:
        return to_float(x, to)
    if to.is_integer:
        return to_integer(x, to)
    return to_float(to_integer(x, DType.int64), to)
