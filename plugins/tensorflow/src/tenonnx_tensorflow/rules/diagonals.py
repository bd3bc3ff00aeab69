"""Diagonals and bands of matrices."""

from __future__ import annotations

from typing import Any

import numpy as np

import tenonnx_standard as ops
from tenonnx.extend import DType, NotRepresentable, Value, constant, static
from tenonnx_tensorflow.held import as_dtype, integers, number, scalar
from tenonnx_tensorflow.rules import rule


@rule("Diag", "MatrixDiag")
def diagonal(node: Any, x: Value) -> Value:
    """The elements on the diagonal of a square, zeros beside them."""
    if node.op == "Diag" and x.ndim > 1:
        raise NotRepresentable("the elements of a diagonal must be a vector", given=f"{x.type}")
    length = ops.gather(ops.shape(x), constant(np.asarray([-1])))
    square = ops.concat(length, length, axis=0)
    eye = ops.eye_like(ops.expand(constant(np.zeros((), np.float32)), square))
    return ops.where(ops.cast(eye, to=DType.bool), ops.unsqueeze(x, [x.ndim - 1]), number(0, x))


@rule("MatrixDiagPart", "DiagPart")
def diagonal_part(node: Any, x: Value) -> Value:
    return _banded(x, 0)


def _banded(x: Value, k: int) -> Value:
    """The elements of diagonal ``k``: those of each row at their place."""
    sizes = ops.shape(x)
    rows, columns = ops.gather(sizes, [x.ndim - 2]), ops.gather(sizes, [x.ndim - 1])
    first_row, first_column = max(0, -k), max(0, k)
    count = ops.minimum(
        ops.sub(rows, constant(np.asarray([first_row]))), ops.sub(columns, constant(np.asarray([first_column])))
    )
    steps = ops.range_(constant(np.asarray(0)), scalar(count), constant(np.asarray(1)))
    places = ops.add(
        ops.mul(ops.add(steps, constant(np.asarray(first_row))), columns),
        ops.add(steps, constant(np.asarray(first_column))),
    )
    front = ops.slice_(sizes, [0], [x.ndim - 2], [0])
    flat = ops.reshape(x, ops.concat(front, constant(np.asarray([-1])), axis=0) if x.ndim > 2 else [-1])
    return ops.gather(flat, places, axis=x.ndim - 2)


@rule("MatrixDiagPartV2", "MatrixDiagPartV3")
def diagonals_part(node: Any, x: Value, k: Value, padding: Value) -> Value:
    low, *more = integers(k, "which diagonals")
    high = more[0] if more else low
    if low == high:
        return _banded(x, low)
    raise NotRepresentable("one diagonal must be asked for", given=f"those from {low} to {high}")


@rule("MatrixDiagV2", "MatrixDiagV3")
def diagonal_of_matrix(node: Any, x: Value, k: Value, rows: Value, columns: Value, padding: Value) -> Value:
    low, *more = integers(k, "which diagonals")
    sizes = (*integers(rows, "the rows"), *integers(columns, "the columns"))
    if (more and more[0] != low) or low or sizes != (-1, -1):
        raise NotRepresentable("the elements must be those of the main diagonal of a square", given=f"k={low}, {sizes}")
    fill_with = static(padding)
    if fill_with is None or np.asarray(fill_with).any():
        raise NotRepresentable("zeros must stand beside a diagonal", given=f"{fill_with}")
    return diagonal(node, x)


@rule("MatrixSetDiag", "MatrixSetDiagV2", "MatrixSetDiagV3")
def set_diagonal(node: Any, x: Value, diagonal: Value, k: Value | None = None) -> Value:
    if k is not None and integers(k, "which diagonal") not in ([0], [0, 0]):
        raise NotRepresentable("the main diagonal must be set", given=f"k={integers(k, 'which diagonal')}")
    sizes = ops.shape(x)
    plain = ops.slice_(sizes, [x.ndim - 2], [x.ndim], [0])
    mask = ops.cast(ops.eye_like(ops.expand(constant(np.zeros((), np.float32)), plain)), to=DType.bool)
    rows, columns = ops.gather(sizes, [x.ndim - 2]), ops.gather(sizes, [x.ndim - 1])
    missing = ops.sub(rows, ops.minimum(rows, columns))
    pads = ops.concat(constant(np.zeros(2 * diagonal.ndim - 1, np.int64)), missing, axis=0)
    column = ops.unsqueeze(ops.pad(diagonal, pads), [diagonal.ndim])
    return ops.where(mask, column, x)


@rule("MatrixBandPart")
def band(node: Any, x: Value, lower: Value, upper: Value) -> Value:
    (low,), (high,) = integers(lower, "how many diagonals below"), integers(upper, "how many diagonals above")
    held = ops.cast(x, to=DType.int32) if x.dtype is DType.bool else x
    if low >= 0:
        held = ops.trilu(held, constant(np.asarray(-low)), upper=1)
    if high >= 0:
        held = ops.trilu(held, constant(np.asarray(high)), upper=0)
    return as_dtype(held, x.dtype)
