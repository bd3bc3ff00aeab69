"""Matrix products, Einstein sums and determinants."""

from __future__ import annotations

from typing import Any

import numpy as np

from tenonnx.extend import TensorType, TypeMismatch, Value, broadcast_types, op, primitive
from tenonnx.graph.dims import broadcast_shapes

Array = np.ndarray[Any, Any]


@primitive("MatMul")
def matmul(A, B):
    """The matrix product of the last two axes; the axes before them broadcast."""


@matmul.type
def _(A: Value, B: Value) -> TensorType:
    if A.dtype is not B.dtype:
        raise TypeMismatch(f"{matmul.title}: both inputs must have one dtype", given=f"{A!r}, {B!r}", do="cast one of them")
    a, b = A.tensor.shape, B.tensor.shape
    if a is None or b is None:
        return TensorType(A.dtype)
    if not a or not b:
        raise TypeMismatch(f"{matmul.title}: the inputs must have at least one axis", given=f"{A!r}, {B!r}")
    inner, outer = a[-1], b[-2] if len(b) > 1 else b[-1]
    if isinstance(inner, int) and isinstance(outer, int) and inner != outer:
        raise TypeMismatch(
            f"{matmul.title}: the last axis of A must be as long as the last but one of B", given=f"{A!r}, {B!r}"
        )
    try:
        batch = broadcast_shapes(a[:-2], b[:-2])
    except ValueError as error:
        raise TypeMismatch(
            f"{matmul.title}: the axes before the last two must broadcast together", given=f"{A!r}, {B!r}"
        ) from error
    return TensorType(A.dtype, (*batch, *(a[-2:-1] if len(a) > 1 else ()), *(b[-1:] if len(b) > 1 else ())))


@matmul.numpy
def _(A: Array, B: Array) -> Array:
    return np.matmul(A, B)
