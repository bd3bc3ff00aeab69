"""Matrices of int8 in the layouts of cublasLt, and the ops on them: the QOrdered family."""

from __future__ import annotations

import math
from typing import Any

import tenonnx_standard as ops
from tenonnx.extend import (
    REQUIRED,
    DType,
    Value,
    axis,
    dims,
    dtypes,
    floats,
    holds,
    one_of,
    op,
    shapes,
    together,
)
from tenonnx_quantized.granularity import scalar
from tenonnx_quantized.matrix import matmul_integer
from tenonnx_quantized.quantize import dequantize_linear, quantize_linear, to

COL, ROW, COL32, COL4_4R2_8C, COL32_2R_4R4 = range(5)

#: Layouts of cublasLt: the axes in memory, slowest first, and which of them form rows and columns of a matrix. ``R``
#: and ``C`` have the remaining length; COL4_4R2_8C has tiles of 8 rows, even rows first, COL32_2R_4R4 of 32.
_LAYOUTS = {
    COL: ("CR", "R", "C"),
    ROW: ("RC", "R", "C"),
    COL32: ("CRc", "R", "Cc"),
    COL4_4R2_8C: ("CR2845", "R42", "C85"),
    COL32_2R_4R4: ("CR342c", "R432", "Cc"),
}
_SIZES = {"2": 2, "3": 4, "4": 4, "5": 4, "8": 8, "c": 32}


def _sides(x: Value, order: int) -> tuple[list[Any], dict[str, Any]]:
    """The dims of ``x`` before the last two, and the length of each axis of a layout."""
    *outer, rows, columns = dims(x) if x.ndim > 1 else [1, *dims(x)]
    _, *parts = _LAYOUTS[order]
    lengths: dict[str, Any] = dict(_SIZES)
    for length, part in zip((rows, columns), parts, strict=True):
        lengths[part[0]] = length // math.prod(_SIZES[axis] for axis in part[1:])
    return outer, lengths


def as_rows(x: Value, order: int) -> Value:
    """Convert a matrix from a layout to rows."""
    memory, rows, columns = _LAYOUTS[order]
    return _moved(x, order, memory, rows + columns)


def from_rows(x: Value, order: int) -> Value:
    """The inverse of ``as_rows``."""
    memory, rows, columns = _LAYOUTS[order]
    return _moved(x, order, rows + columns, memory)


def _moved(x: Value, order: int, given: str, wanted: str) -> Value:
    if given == wanted:
        return x
    outer, lengths = _sides(x, order)
    parts = ops.reshape(x, [*outer, *(lengths[axis] for axis in given)])
    before = range(len(outer))
    turned = ops.transpose(parts, perm=[*before, *(len(outer) + given.index(axis) for axis in wanted)])
    return ops.reshape(turned, dims(x))


def _quantized(y: Value, scale: Value) -> Value:
    return quantize_linear(y, to(scale, y.dtype), output_dtype=int(DType.int8))


def _numbers(quantized: Value, scale: Value) -> Value:
    return dequantize_linear(quantized, scale)  # type: ignore[no-any-return]


@op("QuantizeWithOrder", domain="com.microsoft")
def quantize_with_order(input, scale_input, *, order_input: int, order_output: int):
    """``input`` quantized to int8 by its scale, and reordered from one cublasLt layout to another."""
    return from_rows(_quantized(to(as_rows(input, order_input), DType.float32), scalar(scale_input)), order_output)


quantize_with_order.traits(on_request=True)


@op("DequantizeWithOrder", domain="com.microsoft")
def dequantize_with_order(input, scale_input, *, order_input: int, order_output: int, to: int):
    """Dequantized int8 values, reordered from one cublasLt layout to another."""
    y = _numbers(from_rows(as_rows(input, order_input), order_output), scalar(scale_input))
    return y if to == DType.float32 else ops.cast(y, to=to)


dequantize_with_order.traits(on_request=True)


@op("QOrderedMatMul", domain="com.microsoft")
def qordered_matmul(
    A, scale_A, B, scale_B, scale_Y, bias=None, C=None, scale_C=None, *, order_A: int, order_B: int, order_Y: int
):
    """``(A @ B + bias + C) / scale_Y`` as int8; B may have a scale per column.

    In a tiled layout, B is stored transposed.
    """
    b = as_rows(B, order_B) if order_B in (COL, ROW) else _transposed_tiles(B, order_B)
    sums = matmul_integer(as_rows(A, order_A), b)
    y = to(sums, DType.float32) * (scalar(scale_A) * _columns(scale_B))
    if bias is not None:
        y = y + bias
    if C is not None:
        y = y + _numbers(as_rows(C, order_A), scalar(scale_C))
    return from_rows(_quantized(y, scalar(scale_Y)), order_Y)


qordered_matmul.traits(on_request=True)


def _transposed_tiles(B: Value, order: int) -> Value:
    """A matrix whose transpose is stored in tiles."""
    rows, columns = dims(B)
    return ops.transpose(as_rows(ops.reshape(B, [columns, rows]), order), perm=[1, 0])


def _columns(scale: Value) -> Value:
    return scalar(scale) if scale.ndim == 0 or scale.shape[0] == 1 else scale


@op("QOrderedGelu", domain="com.microsoft")
def qordered_gelu(X, scale_X, scale_Y, *, order_X: int | None = None, order_Y: int | None = None):
    """Gelu of quantized int8 values."""
    return _quantized(ops.gelu(_numbers(X, scalar(scale_X))), scalar(scale_Y))


qordered_gelu.traits(on_request=True)


@op("QOrderedLayerNormalization", domain="com.microsoft")
def qordered_layer_normalization(
    X, scale_X, scale, B=None, scale_Y=REQUIRED, *, axis=-1, epsilon=1e-5, order_X=1, order_Y=1
):
    """LayerNormalization of quantized int8 values."""
    x = _numbers(as_rows(X, order_X), scalar(scale_X))
    weights = to(scale, DType.float32), None if B is None else to(B, DType.float32)
    y = ops.layer_normalization(x, *weights, axis=axis, epsilon=epsilon)[0]
    return from_rows(_quantized(y, scalar(scale_Y)), order_Y)


qordered_layer_normalization.traits(on_request=True)


def _same_layout(order_X, order_Y):
    return "order_X and order_Y differ" if order_X != order_Y else None


def _one_layout(order_A, order_B, order_Y):
    if order_A != order_Y or (order_A, order_B) not in ((ROW, COL), (COL32, COL4_4R2_8C), (COL32, COL32_2R_4R4)):
        return "order_A and order_Y are neither 1 with order_B 0, nor 2 with order_B 3 or 4"
    return None


quantize_with_order.requires(
    floats("input"),
    dtypes(scale_input="float32"),
    shapes(input="... rows columns", scale_input="|1"),
    one_of(order_input=_LAYOUTS, order_output=_LAYOUTS),
)
dequantize_with_order.requires(
    dtypes(input="int8"),
    floats("scale_input"),
    shapes(input="... rows columns", scale_input="|1"),
    one_of(order_input=_LAYOUTS, order_output=_LAYOUTS, to=(1, 10)),
)
qordered_matmul.requires(
    dtypes(A="int8", B="int8", C="int8", scale_A="float32", scale_B="float32", scale_Y="float32", bias="float32"),
    shapes(A="... rows inner", B="inner columns", bias="columns", scale_A="|1", scale_B="|1|columns", scale_Y="|1"),
    together("C", "scale_C"),
    holds(_one_layout),
)
qordered_gelu.requires(
    dtypes(X="int8", scale_X="float32", scale_Y="float32"),
    shapes(scale_X="|1", scale_Y="|1"),
    holds(_same_layout),
)
qordered_layer_normalization.requires(
    dtypes(X="int8", scale_X="float32", scale_Y="float32"),
    shapes(scale_X="|1", scale_Y="|1"),
    floats("scale", "B"),
    axis("axis", of="X"),
    holds(_same_layout),
    one_of(order_X=_LAYOUTS, order_Y=_LAYOUTS),
)
