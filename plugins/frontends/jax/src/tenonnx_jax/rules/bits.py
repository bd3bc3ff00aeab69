"""Bit casts between element types, and adjacent floats."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

import tenonnx_standard as ops
from tenonnx.extend import DType, NotRepresentable, Value
from tenonnx_frontends.bits import bitcast
from tenonnx_jax.promotion import scalar, where
from tenonnx_jax.rules import rule


@rule("bitcast_convert_type")
def bitcast_convert_type_rule(equation: Any, x: Value, *, new_dtype: Any, **_: Any) -> Value:
    to = equation.dtype
    if (DType.bool in (x.dtype, to) and x.dtype is not to) or min(x.dtype.bits, to.bits) < 8:
        raise NotRepresentable("a bitcast involves a type that is not of whole bytes", given=f"{x.dtype} to {to}")
    if x.dtype.bits == to.bits:
        return bitcast(x, to)
    return _resized(equation, x, new_dtype)


def _resized(equation: Any, x: Value, dtype: Any) -> Value:
    """Bit cast to a narrower type along a new last axis, lowest bits first, or back to a wider one."""
    old, new = equation.ins[0].dtype, np.dtype(dtype)
    short = 8 * min(old.itemsize, new.itemsize)
    wide, narrow = f"uint{8 * max(old.itemsize, new.itemsize)}", f"uint{short}"
    places = np.arange(max(old.itemsize, new.itemsize) * 8 // short, dtype=wide) * np.array(short, wide)

    def apart(a: Any) -> Any:
        parts = (lax.bitcast_convert_type(a, wide)[..., None] >> places) & np.array((1 << short) - 1, wide)
        return lax.bitcast_convert_type(parts.astype(narrow), new)

    def together(a: Any) -> Any:
        parts = lax.bitcast_convert_type(a, narrow).astype(wide) << places
        return lax.bitcast_convert_type(jnp.sum(parts, -1, dtype=wide), new)

    return equation.trace(apart if old.itemsize > new.itemsize else together, x)[0]


@rule("nextafter")
def nextafter_rule(equation: Any, x: Value, y: Value, **_: Any) -> Value:
    kind = DType.of(np.dtype(f"int{x.dtype.bits}"))
    zero = scalar(0, x)
    raw = bitcast(x, kind)
    up = ops.equal(ops.greater(y, x), ops.greater(x, zero))
    one = scalar(1, raw)
    moved = bitcast(where(up, ops.add(raw, one), ops.sub(raw, one)), x.dtype)
    tiny = scalar(float(np.nextafter(*np.asarray([0, 1], x.dtype.numpy))), x)
    moved = ops.where(ops.equal(x, zero), ops.where(ops.greater(y, zero), tiny, ops.neg(tiny)), moved)
    moved = ops.where(ops.equal(x, y), y, moved)
    return ops.where(ops.or_(ops.isnan(x), ops.isnan(y)), ops.add(x, y), moved)
