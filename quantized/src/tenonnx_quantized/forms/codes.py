"""What the forms share: constants that are computed when they are written, and a walk that leaves codes as they are."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from tenonnx.extend import DType, Known, Node, Op, TensorType, Value
from tenonnx.extend.transforms import Rewriter, bind, infer_call
from tenonnx_quantized import contrib_quantize
from tenonnx_quantized.quantize import dequantize_linear, quantize_linear

Array = np.ndarray[Any, Any]


class Computed:
    """Contents that are computed from others whenever they are asked for, and not kept: one tensor at a time."""

    __slots__ = ("_compute", "type")

    def __init__(self, dtype: DType, shape: Sequence[int], compute: Callable[[], Array]) -> None:
        self.type = TensorType(dtype, tuple(shape))
        self._compute = compute

    @property
    def nbytes(self) -> int:
        return math.prod(d for d in self.type.shape or () if isinstance(d, int)) * self.type.dtype.numpy.itemsize

    def array(self) -> Array:
        found = self._compute()
        found.flags.writeable = False
        return found


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
