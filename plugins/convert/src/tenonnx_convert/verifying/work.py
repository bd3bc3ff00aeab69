"""Work of a run, estimated before it: elements that nodes compute, and trips of loops."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from tenonnx import limits
from tenonnx.errors import InvalidCall
from tenonnx.graph.graph import Graph, Node, Value
from tenonnx.graph.symbolic import evaluate
from tenonnx.graph.types import TensorType
from tenonnx.op.graph_inference import infer
from tenonnx.transforms.decompose import inline_functions
from tenonnx.transforms.rewrite import copy_graph
from tenonnx_convert.verifying.generate import InputShapes, usual_sizes

#: Elements that the call of a kernel costs as much as.
_CALL = 1 << 7

#: Trips of a loop that nothing ends.
_FOREVER = 1 << 62

#: Elements of work that each element of inputs and weights justifies.
_JUSTIFIED = 1 << 12


def check_work(graph: Graph, input_shapes: InputShapes | None = None) -> None:
    """Raise ``LimitExceeded`` where a run on inputs of the usual sizes would take more work than the limit.

    Large inputs and weights justify more. Loops that end by what they compute count one trip, unknown dims one element.
    """
    typed = inline_functions(graph) if graph.functions else copy_graph(graph)
    try:
        infer(typed, input_shapes, strict=False)
    except InvalidCall:  # shapes that the inputs do not have: the run says so of what it is fed
        return
    sizes = usual_sizes(graph, input_shapes)
    brought = sum(_elements(value, sizes) for value in (*typed.inputs, *typed.variables))
    works = {node: _work_of(node, sizes) for node in typed.nodes}
    if works:
        most = max(works, key=lambda node: works[node])
        amount = sum(works.values()) - _JUSTIFIED * brought
        limits.check("work", amount, f"a run of the model, of which {most.title} takes the most,")


def _work_of(node: Node, sizes: Mapping[str, int]) -> int:
    own = _CALL + sum(_elements(value, sizes) for value in node.outputs if value is not None)
    inside = sum(_work_of(inner, sizes) for subgraph in node.subgraphs for inner in subgraph.nodes)
    return own + _trips(node, sizes) * inside


def _elements(value: Value, sizes: Mapping[str, int]) -> int:
    shape = value.type.shape if isinstance(value.type, TensorType) else None
    return math.prod(_size(dim, sizes) for dim in shape or ())


def _size(dim: Any, sizes: Mapping[str, int]) -> int:
    try:
        return 1 if dim is None else max(evaluate(dim, sizes), 0)
    except (ValueError, ZeroDivisionError):
        return 1


def _trips(node: Node, sizes: Mapping[str, int]) -> int:
    """Times that a run enters the subgraphs of a node, as far as constants and shapes tell."""
    if node.op_type == "Scan":
        scanned = int(node.attributes["num_scan_inputs"])
        value = node.inputs[-scanned]
        shape = value.type.shape if value is not None and isinstance(value.type, TensorType) else None
        axes = node.attributes.get("scan_input_axes") or [0]
        return _size(shape[axes[0]], sizes) if shape else 1
    if node.op_type != "Loop" or not _goes_on(node.attributes["body"]):
        return 1
    count, condition = (*node.inputs, None, None)[:2]
    if condition is not None and _contents(condition) == 0:
        return 0
    if count is None:
        return _FOREVER
    return max(_size(_contents(count), sizes), 0)


def _goes_on(body: Graph) -> bool:
    """Whether the condition that a body of a Loop computes is True whenever the one that it takes is."""
    value, makers = body.outputs[0], {made: node for node in body.nodes for made in node.outputs}
    while value in makers and makers[value].op_type == "Identity":
        (value,) = makers[value].uses
    return value is body.all_inputs[1] or _contents(value) == 1


def _contents(value: Value) -> Any:
    """The number that a scalar is known to be, which may depend on dims; None of others."""
    if value.data is not None:
        array = value.data.array()
        return int(array.reshape(-1)[0]) if array.size == 1 else None
    known = value.symbolic_contents
    return known.reshape(-1)[0] if known is not None and known.size == 1 else None
