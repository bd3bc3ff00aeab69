"""Moving data-movement ops to quantized values.

onnxruntime would do so itself, but from opset 21 on it then fails to load 8-bit models.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tenonnx.extend import Graph, Node, Value
from tenonnx.extend.transforms import Call, Rewriter, in_registry_of_graph, prune

_MOVING = frozenset({"Transpose", "Reshape", "Squeeze", "Unsqueeze", "Flatten", "Slice"})


@in_registry_of_graph
def moved_quantized(graph: Graph) -> Graph:
    """Move data-movement ops before DequantizeLinear and after QuantizeLinear, for per-tensor scales."""
    return prune(Rewriter(graph, _decide).run())


def _decide(rewriter: Rewriter, call: Call) -> Sequence[Value | None] | None:
    x = call.inputs[0] if call.node is not None and call.inputs else None
    if x is None or x.producer is None:
        return None
    before, rest = x.producer, call.inputs[1:]
    if call.op.name in _MOVING and before.op_type == "DequantizeLinear" and _is_scalar(before.inputs[1]):
        return [_again(before, call.op(before.inputs[0], *rest, **call.attributes))]
    if call.op.name != "QuantizeLinear" or not _is_scalar(rest[0]):
        return None
    moves = []
    while x is not None and x.producer is not None and x.producer.op_type in _MOVING:
        moves.append(x.producer)
        x = x.producer.inputs[0]
    quantized = call.op(x, *rest, **call.attributes)
    for move in reversed(moves):
        quantized = _again(move, quantized)
    return [quantized] if moves else None


def _again(node: Node, x: Value) -> Any:
    """A copy of a node with another first input."""
    op: Any = node.op
    return op(x, *node.inputs[1:], **node.attributes)


def _is_scalar(scale: Value | None) -> bool:
    return scale is not None and scale.rank == 0
