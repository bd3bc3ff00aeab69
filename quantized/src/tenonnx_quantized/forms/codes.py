"""What the forms share: constants that are computed when they are written, and a walk that leaves codes as they are."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from tenonnx.extend import DType, Known, Node, Op, RowConstant, TensorType, Value
from tenonnx.extend.transforms import Rewriter, bind, infer_call
from tenonnx_quantized import contrib_quantize
from tenonnx_quantized.quantize import dequantize_linear, quantize_linear

Array = np.ndarray[Any, Any]


#: How many elements are read at a time where all of a tensor is wanted.
_AT_ONCE = 1 << 21


class Computed:
    """Contents that are computed from others whenever they are asked for, and not kept.

    ``compute`` gives the positions from the first to the second number along the first axis.
    """

    __slots__ = ("_compute", "type")

    def __init__(self, dtype: DType, shape: Sequence[int], compute: Callable[[int, int], Array]) -> None:
        self.type = TensorType(dtype, tuple(shape))
        self._compute = compute

    @property
    def _shape(self) -> list[int]:
        return [d for d in self.type.shape or () if isinstance(d, int)]

    @property
    def nbytes(self) -> int:
        return -(-math.prod(self._shape) * self.type.dtype.bits // 8)

    def array(self) -> Array:
        found = self.rows(0, (*self._shape, 1)[0])
        found.flags.writeable = False
        return found

    def rows(self, start: int, stop: int) -> Array:
        return self._compute(start, stop)


def rows(value: Value, start: int, stop: int) -> Array:
    """These positions of a constant along its first axis, read by themselves where that is possible."""
    data = value.data
    assert data is not None
    return data.rows(start, stop) if isinstance(data, RowConstant) else data.array()[start:stop]


def turned(value: Value, make: Callable[[Array], Array]) -> Array:
    """The transpose of what ``make`` makes of the rows of a constant, some rows at a time."""
    each = max(1, math.prod(d for d in value.shape[1:] if isinstance(d, int)))
    count, length = max(1, _AT_ONCE // each), value.shape[0]
    assert isinstance(length, int)
    parts = [make(rows(value, at, min(at + count, length))).T for at in range(0, length, count)]
    return np.concatenate(parts, axis=1) if parts else np.empty((0, 0))


class CodesRewriter(Rewriter):
    """A rewriter that adds DequantizeLinear of constants as a node, where others would compute it."""

    def call(
        self, op: Op, inputs: Sequence[Value | None], attributes: Mapping[str, Any], outputs: int | None = None
    ) -> tuple[Value | None, ...]:
        if not is_meaning(op, dequantize_linear):
            return super().call(op, inputs, attributes, outputs)
        values = [self.adopt(v) for v in inputs]
        known = [None if k is None else Known(k.type) for k in infer_call(op, values, attributes, outputs)]
        return self.add(op, values, attributes, known)

    def place(self, name: str, contents: Computed) -> Value:
        """A constant of the new graph."""
        return Value(self.name(name), contents.type, data=contents, graph=self.graph)


def is_meaning(op: Any, *of: Op) -> bool:
    """Whether an op is one of these, at any version."""
    return any(op is meaning for wanted in of for meaning in wanted.meanings)


def is_dequantize(op: Any) -> bool:
    return is_meaning(op, dequantize_linear, contrib_quantize.dequantize_linear)


def is_quantize(op: Any) -> bool:
    return is_meaning(op, quantize_linear, contrib_quantize.quantize_linear)


def producer(value: Value | None, *wanted: Op) -> Node | None:
    """The node that computes a value, if it is of one of these ops."""
    node = None if value is None else value.producer
    return node if node is not None and (not wanted or is_meaning(node.op, *wanted)) else None


def dequantized(value: Value | None) -> tuple[list[Value | None], dict[str, Any]] | None:
    """The inputs and attributes of the DequantizeLinear that computes a value."""
    node = None if value is None else value.producer
    return bind(node) if node is not None and is_dequantize(node.op) else None
