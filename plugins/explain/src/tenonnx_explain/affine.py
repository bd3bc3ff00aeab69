"""Detection of values that are affine functions of others."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tenonnx.extend import Graph, Node, Value

#: Ops that move, copy, sum or negate their first input; further inputs are shapes, axes or indices.
_MOVING = {
    *("Identity", "Cast", "Neg", "Reshape", "Squeeze", "Unsqueeze", "Flatten", "Transpose", "Gather", "Slice", "Split"),
    *("ReduceSum", "ReduceMean", "Expand"),
}

#: Ops that are jointly affine in all inputs.
_ADDING = {"Add", "Sub", "Sum", "Concat", "Mean"}

#: Ops that are affine in one input if the others do not depend on it.
_SCALING = {"Mul", "MatMul", "Gemm"}


def affine_values(graph: Graph, sources: Sequence[Value]) -> list[Value]:
    """Float values that are affine in ``sources``: first the sources, then others in the order of the nodes."""
    affine = dict.fromkeys(sources)
    dependent = set(sources)
    for node in graph.nodes:
        if not dependent.intersection(node.uses):
            continue
        outputs = [value for value in node.outputs if value is not None]
        dependent.update(outputs)
        if _is_affine(node, lambda value: value in affine, lambda value: value not in dependent):
            affine.update(dict.fromkeys(outputs))
    return [value for value in affine if _is_float(value)]


def _is_affine(node: Node, is_affine: Callable[[Value], bool], is_free: Callable[[Value], bool]) -> bool:
    """Whether a node's outputs are affine: its inputs have to be affine, or free of the sources."""
    if node.subgraphs or node.domain not in ("", "ai.onnx"):
        return False
    inputs = [value for value in node.inputs if value is not None]
    moved = [is_affine(value) for value in inputs]
    if not all(affine or is_free(value) for affine, value in zip(moved, inputs, strict=True)):
        return False
    if node.op_type in _MOVING or node.op_type == "Div":
        return moved[0] and not any(moved[1:])
    if node.op_type == "Gemm" and len(moved) == 3 and moved[2]:
        return not any(moved[:2]) or sum(moved[:2]) == 1
    return node.op_type in _ADDING or (node.op_type in _SCALING and sum(moved[:2]) == 1)


def _is_float(value: Value) -> bool:
    dtype = getattr(value.type, "dtype", None)
    return dtype is not None and dtype.is_float


def last_affine(graph: Graph, sources: Sequence[Value]) -> Value:
    """The first output that is affine in ``sources``, else the last affine matrix on which an output depends."""
    affine = affine_values(graph, sources)
    for output in graph.outputs:
        if output in affine and output not in sources:
            return output
    needed = _sources(graph)
    return next((value for value in reversed(affine) if value in needed and value.rank == 2), affine[-1])


def _sources(graph: Graph) -> set[Value]:
    """The values on which the float outputs depend; on which all outputs depend if no output is float."""
    wanted = {value for value in graph.outputs if _is_float(value)} or set(graph.outputs)
    for node in reversed(graph.nodes):
        if wanted.intersection(value for value in node.outputs if value is not None):
            wanted.update(node.uses)
    return wanted
