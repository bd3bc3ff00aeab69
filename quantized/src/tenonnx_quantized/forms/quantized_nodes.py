"""Shared helpers of the forms: a rewriter that keeps quantized values, and queries of their nodes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tenonnx.extend import Known, Node, Op, Value
from tenonnx.extend.transforms import Rewriter, bind, infer_call
from tenonnx_quantized import contrib_quantize
from tenonnx_quantized.computed import Computed
from tenonnx_quantized.quantize import dequantize_linear, quantize_linear


class QuantizationRewriter(Rewriter):
    """A rewriter that keeps DequantizeLinear of constants as a node instead of folding it."""

    def call(
        self, op: Op, inputs: Sequence[Value | None], attributes: Mapping[str, Any], outputs: int | None = None
    ) -> tuple[Value | None, ...]:
        if not is_meaning(op, dequantize_linear):
            return super().call(op, inputs, attributes, outputs)
        values = [self.adopt(v) for v in inputs]
        known = [None if k is None else Known(k.type) for k in infer_call(op, values, attributes, outputs)]
        return self.add(op, values, attributes, known)

    def place(self, name: str, contents: Computed) -> Value:
        """A constant in the new graph."""
        return Value(self.name(name), contents.type, data=contents, graph=self.graph)


def is_meaning(op: Any, *of: Op) -> bool:
    """Whether an op is a version of one of these ops."""
    return any(op is meaning for wanted in of for meaning in wanted.meanings)


def is_dequantize(op: Any) -> bool:
    return is_meaning(op, dequantize_linear, contrib_quantize.dequantize_linear)


def is_quantize(op: Any) -> bool:
    return is_meaning(op, quantize_linear, contrib_quantize.quantize_linear)


def producer(value: Value | None, *wanted: Op) -> Node | None:
    """The node that computes a value, if it has one of these ops."""
    node = None if value is None else value.producer
    return node if node is not None and (not wanted or is_meaning(node.op, *wanted)) else None


def dequantized(value: Value | None) -> tuple[list[Value | None], dict[str, Any]] | None:
    """The inputs and attributes of the DequantizeLinear that computes a value."""
    node = None if value is None else value.producer
    return bind(node) if node is not None and is_dequantize(node.op) else None
