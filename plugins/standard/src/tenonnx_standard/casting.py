"""Conversion between element types."""

from __future__ import annotations

from typing import Any

import numpy as np

from tenonnx.extend import DType, TensorType, TypeMismatch, Value, op, primitive

Array = np.ndarray[Any, Any]


@primitive("Cast", symbolic=True)
def cast(input, *, to, saturate=1, round_mode="up"):
    """The elements of ``input`` converted to the element type ``to``."""


@cast.type
def _(input: Value, *, to: int, saturate: int, round_mode: str) -> TensorType:
    return input.tensor.with_dtype(DType(to))


@cast.numpy
def _(input: Array, *, to: int, saturate: int = 1, round_mode: str = "up") -> Array:
    return input.astype(DType(to).numpy, copy=False)


@cast.vjp
def _(g: Value, y: Value, input: Value, *, to: int, saturate: int, round_mode: str) -> Value | None:
    return cast(g, to=input.dtype) if input.dtype.is_float and y.dtype.is_float else None


@op("CastLike", since=15)
def cast_like(input, target_type, *, saturate=1, round_mode="up"):
    """``input`` converted to the element type of ``target_type``."""
    return cast(input, to=target_type.dtype, saturate=saturate, round_mode=round_mode)
