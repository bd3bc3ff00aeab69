"""Computation in wider element types where onnxruntime lacks kernels."""

from __future__ import annotations

from typing import Any

import numpy as np

import tenonnx_standard as ops
from tenonnx.extend import DType, Value, constant

#: Integer types without onnxruntime kernels, and wider ones in which results are exact.
WIDE = {
    DType.int8: DType.int32,
    DType.uint8: DType.int32,
    DType.int16: DType.int32,
    DType.uint16: DType.int32,
    DType.uint32: DType.int64,
}
#: Integer types without reductions and cumulative sums in onnxruntime, and those without Max, Min, Pad and Where.
NARROW, SIXTEEN_BITS = frozenset(WIDE), frozenset({DType.int16, DType.uint16})


def scalar(number: float, like: Value) -> Value:
    """A scalar with the element type of ``like``."""
    return constant(np.asarray(number).astype(like.dtype.numpy))


def widened(function: Any, dtypes: frozenset[DType], *values: Value) -> Value:
    """Compute in a wider type where onnxruntime lacks kernels for the type of the first value."""
    dtype = values[0].dtype
    if dtype not in dtypes:
        return function(*values)
    return ops.cast(function(*(ops.cast(value, to=WIDE[dtype]) for value in values)), to=dtype)


def where(condition: Value, x: Value, y: Value) -> Value:
    """``x`` where ``condition`` holds, else ``y``."""
    return widened(lambda x, y: ops.where(condition, x, y), SIXTEEN_BITS, x, y)
