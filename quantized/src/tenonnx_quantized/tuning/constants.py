"""Constant propagation of weights through ops that move or cast them."""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence

import tenonnx_standard as ops
from tenonnx.extend import Graph, Known, TensorType, Value, moves_data
from tenonnx.extend.transforms import Call, Rewriter, folding, prune
from tenonnx_quantized.forms.quantized_nodes import is_meaning

#: Consumers for which a cast weight is folded.
_READERS = (ops.conv, ops.matmul, ops.gemm)


def weights_as_constants(graph: Graph) -> Graph:
    """Replace Constant nodes, and nodes that move or cast a weight, by initializers."""
    fold = folding(sys.maxsize)

    def decide(rewriter: Rewriter, call: Call) -> Sequence[Value | None] | None:
        return fold(rewriter, call) if _is_weight(rewriter, call) else None

    return prune(Rewriter(graph, decide).run())


def _is_weight(rewriter: Rewriter, call: Call) -> bool:
    node = call.node
    if node is None or any(value is not None and not value.is_constant for value in call.inputs):
        return False
    if is_meaning(call.op, ops.constant):
        return True
    if is_meaning(call.op, ops.cast):
        readers = [reader for value in node.outputs if value is not None for reader in rewriter.readers.get(value, ())]
        return bool(readers) and all(is_meaning(reader.op, *_READERS) for reader in readers)
    sizes = [math.prod(shape) for value in (call.inputs[0], call.known[0]) if (shape := _shape(value)) is not None]
    return moves_data(call.op, call.attributes) and len(sizes) == 2 and sizes[0] == sizes[1]


def _shape(value: Value | Known | None) -> tuple[int, ...] | None:
    """The static shape of a float tensor, else None."""
    kind = None if value is None else value.type
    if not isinstance(kind, TensorType) or not kind.dtype.is_float or kind.shape is None:
        return None
    return tuple(dim for dim in kind.shape if isinstance(dim, int)) if None not in kind.shape else None
