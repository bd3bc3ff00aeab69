"""Work of a run, estimated in advance: elements that nodes compute, and loop trips."""

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

#: Cost of a kernel call, in elements.
_CALL = 1 << 7

#: Trip count of an endless loop.
_FOREVER = 1 << 62

#: Elements of work allowed for each element of inputs and weights.
_JUSTIFIED = 1 << 12


def check_work(graph: Graph, input_shapes: InputShapes | None = None) -> None:
    """Raise ``LimitExceeded`` if a run on inputs of default sizes would exceed the limit of work.

    The limit grows with large inputs and weights. Loops that end by a computed condition count one trip, unknown dims
    one element.
    """
    typed = inline_functions(graph) if graph.functions else copy_graph(graph)
    try:
        infer(typed, input_shapes, strict=False)
    except InvalidCall:  # inconsistent input shapes, which the run reports
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
    """Trip count of a node's subgraphs, as far as constants and shapes determine it."""
    if node.op_type == "Scan":
        scanned = int(node.attributes["num_scan_inputs"])
        value = node.inputs[-scanned]
        shape = value.type.shape if value is not None and isinstance(value.type, TensorType) else None
        axes = node.attributes.get("scan_input_axes") or [0]
        return _size(shape[axes[0]], sizes) if shape else 1
    if node.op_type != "Loop" or not _is_endless(node.attributes["body"]):
        return 1
    count, condition = (*node.inputs, None, None)[:2]
    if condition is not None and _contents(condition) == 0:
        return 0
    if count is None:
        return _FOREVER
    return max(_size(_contents(count), sizes), 0)


def _is_endless(body: Graph) -> bool:
    """Whether the condition computed by a Loop body is True if its input condition is."""
    value, makers = body.outputs[0], {output: node for node in body.nodes for output in node.outputs}
    while value in makers and makers[value].op_type == "Identity":
        (value,) = makers[value].uses
    return value is body.all_inputs[1] or _contents(value) == 1


def _contents(value: Value) -> Any:
    """The value of a scalar if it is known, perhaps in terms of dims; None for other values."""
    if value.data is not None:
        array = value.data.array()
        return int(array.reshape(-1)[0]) if array.size == 1 else None
    known = value.symbolic_contents
    return known.reshape(-1)[0] if known is not None and known.size == 1 else None
