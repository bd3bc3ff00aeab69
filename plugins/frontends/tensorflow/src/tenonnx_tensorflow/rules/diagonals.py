"""Diagonals and bands of matrices."""

from __future__ import annotations

from typing import Any

import numpy as np

import tenonnx_standard as ops
from tenonnx.extend import DType, NotRepresentable, Value, constant, static
from tenonnx_tensorflow.rules import rule
from tenonnx_tensorflow.tracked_values import as_dtype, integers, number, scalar


@rule("Diag", "MatrixDiag")
def diagonal(node: Any, x: Value) -> Value:
    """A square matrix with these elements on the diagonal, and zeros elsewhere."""
    if node.op == "Diag" and x.ndim > 1:
        raise NotRepresentable("the elements of a diagonal are not a vector", given=f"{x.type}")
    length = ops.gather(ops.shape(x), constant(np.asarray([-1])))
    square = ops.concat(length, length, axis=0)
    eye = ops.eye_like(ops.expand(constant(np.zeros((), np.float32)), square))
    return ops.where(ops.cast(eye, to=DType.bool), ops.unsqueeze(x, [x.ndim - 1]), number(0, x))


@rule("MatrixDiagPart", "DiagPart")
def diagonal_part(node: Any, x: Value) -> Value:
    return _banded(x, 0)


def _banded(x: Value, k: int) -> Value:
    """The elements of diagonal ``k``, each at the position of its row."""
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


#: Alignment of shorter diagonals above and below the main one, by ``align``.
_ALIGNED = {
    "LEFT_RIGHT": (True, False),
    "RIGHT_LEFT": (False, True),
    "LEFT_LEFT": (True, True),
    "RIGHT_RIGHT": (False, False),
}


class _Band:
    """Diagonals ``low`` to ``high`` of matrices of ``rows`` and ``columns``, one per row, the highest first."""

    def __init__(self, node: Any, k: Value, rows: Value, columns: Value) -> None:
        bounds = integers(k, "which diagonals")
        self.low, self.high = bounds[0], bounds[-1]
        self.rows, self.columns = rows, columns
        self._aligned = _ALIGNED["LEFT_LEFT" if node.op.endswith("V2") else node.get("align", "RIGHT_LEFT")]

    @property
    def width(self) -> Value:
        """The length of the longest diagonal."""
        return ops.minimum(ops.add(self.rows, _one(min(self.high, 0))), ops.sub(self.columns, _one(max(self.low, 0))))

    def length(self, k: int) -> Value:
        return ops.minimum(ops.add(self.rows, _one(min(k, 0))), ops.sub(self.columns, _one(max(k, 0))))

    def before(self, k: int) -> Value:
        """Number of padding elements before those of diagonal ``k``."""
        above, below = self._aligned
        is_left = (k >= 0 and above) or (k <= 0 and below)
        return _one(0) if is_left or self.low == self.high else ops.sub(self.width, self.length(k))

    def placed(self, whole: Value, diagonals: Value) -> Value:
        """``whole`` with these diagonals replaced."""
        down = ops.unsqueeze(_counted(self.rows), [1])
        right = ops.unsqueeze(_counted(self.columns), [0])
        along, last = ops.minimum(down, right), ops.sub(self.width, _one(1))
        result = whole
        for k in range(self.low, self.high + 1):
            axis = diagonals.ndim - 1
            source = diagonals
            if self.low != self.high:
                axis -= 1
                source = ops.gather(diagonals, constant(np.asarray(self.high - k)), axis=axis)
            place = ops.minimum(ops.add(along, self.before(k)), last)
            result = ops.where(ops.equal(ops.sub(right, down), _one(k)), ops.gather(source, place, axis=axis), result)
        return result


def _one(content: int) -> Value:
    return constant(np.asarray([content]))


def _counted(size: Value) -> Value:
    return ops.range_(constant(np.asarray(0)), scalar(size), constant(np.asarray(1)))


def _sizes(x: Value) -> tuple[Value, Value]:
    sizes = ops.shape(x)
    return ops.gather(sizes, [x.ndim - 2]), ops.gather(sizes, [x.ndim - 1])


@rule("MatrixDiagPartV2", "MatrixDiagPartV3")
def diagonals_part(node: Any, x: Value, k: Value, padding: Value) -> Value:
    band = _Band(node, k, *_sizes(x))
    if band.low == band.high:
        return _banded(x, band.low)
    found = []
    for each in range(band.high, band.low - 1, -1):
        front = constant(np.zeros(x.ndim - 2, np.int64))
        before = ops.concat(front, band.before(each), axis=0)
        missing = ops.sub(ops.sub(band.width, band.length(each)), band.before(each))
        pads = ops.concat(before, front, missing, axis=0)
        found.append(ops.unsqueeze(ops.pad(_banded(x, each), pads, scalar(padding)), [x.ndim - 2]))
    return ops.concat(*found, axis=x.ndim - 2)


@rule("MatrixDiagV2", "MatrixDiagV3")
def diagonal_of_matrix(node: Any, x: Value, k: Value, rows: Value, columns: Value, padding: Value) -> Value:
    low, high = (bounds := integers(k, "which diagonals"))[0], bounds[-1]
    sizes, filled = (*integers(rows, "the rows"), *integers(columns, "the columns")), static(padding)
    if low == high == 0 and sizes == (-1, -1) and filled is not None and not np.asarray(filled).any():
        return diagonal(node, x)
    width = ops.gather(ops.shape(x), [x.ndim - 1])
    least = ops.add(width, _one(-min(high, 0))), ops.add(width, _one(max(low, 0)))
    if sizes == (-1, -1):
        least = (ops.maximum(*least),) * 2
    down, right = (_one(size) if size != -1 else found for size, found in zip(sizes, least, strict=True))
    front = ops.slice_(ops.shape(x), [0], [x.ndim - (1 if low == high else 2)], [0])
    whole = ops.expand(scalar(as_dtype(padding, x.dtype)), ops.concat(front, down, right, axis=0))
    return _Band(node, k, down, right).placed(whole, x)


@rule("MatrixSetDiag", "MatrixSetDiagV2", "MatrixSetDiagV3")
def set_diagonal(node: Any, x: Value, diagonal: Value, k: Value | None = None) -> Value:
    return _Band(node, constant(np.asarray(0)) if k is None else k, *_sizes(x)).placed(x, diagonal)


@rule("MatrixBandPart")
def band(node: Any, x: Value, lower: Value, upper: Value) -> Value:
    (low,), (high,) = integers(lower, "how many diagonals below"), integers(upper, "how many diagonals above")
    widened = ops.cast(x, to=DType.int32) if x.dtype is DType.bool else x
    if low >= 0:
        widened = ops.trilu(widened, constant(np.asarray(-low)), upper=1)
    if high >= 0:
        widened = ops.trilu(widened, constant(np.asarray(high)), upper=0)
    return as_dtype(widened, x.dtype)
