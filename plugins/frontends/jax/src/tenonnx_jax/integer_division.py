"""Integer division by zero and on overflow, as XLA defines it."""

from __future__ import annotations

from typing import Any

import numpy as np

import tenonnx_standard as ops
from tenonnx.extend import Value, constant, static
from tenonnx_jax.promotion import where


def quotient(x: Value, y: Value) -> Value:
    """``x / y``, truncated towards zero: -1 for division by zero, and the lowest integer divided by -1 is unchanged."""
    known, by_zero = static(y), _number(-1, x)
    if np.dtype(x.dtype.numpy).kind == "u" or (known is not None and (known != -1).all()):
        return guarded(ops.div, x, y, by_zero)
    negated = ops.equal(y, _number(-1, y))
    found = guarded(ops.div, x, where(negated, _number(1, y), y), by_zero)
    return where(negated, ops.sub(_number(0, x), x), found)


def guarded(op: Any, x: Value, y: Value, by_zero: Value) -> Value:
    """A quotient or remainder of integers, with ``by_zero`` where the divisor is zero."""
    contents = static(y)
    if contents is not None and (contents != 0).all():
        return op(x, y)
    zero = ops.equal(y, _number(0, y))
    return where(zero, by_zero, op(x, where(zero, _number(1, y), y)))


def _number(number: int, like: Value) -> Value:
    return constant(np.asarray(number).astype(like.dtype.numpy))
