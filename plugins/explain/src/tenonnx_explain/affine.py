"""Values that are affine functions of others."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tenonnx.extend import Graph, Node, Value

#: Ops that move, copy, sum or negate what they read; a further input is a shape, axes or indices.
_MOVING = {
    *("Identity", "Cast", "Neg", "Reshape", "Squeeze", "Unsqueeze", "Flatten", "Transpose", "Gather", "Slice", "Split"),
    *("ReduceSum", "ReduceMean", "Expand"),
}

#: Ops that are affine in all inputs together.
_ADDING = {"Add", "Sub", "Sum", "Concat", "Mean"}

#: Ops that are affine in one input where the others do not depend on it.
_SCALING = {"Mul", "MatMul", "Gemm"}


def affine_values(graph: Graph, sources: Sequence[Value]) -> list[Value]:
    """Values that are affine in ``sources``, these first, in the order of the nodes."""
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
    """Whether a node is affine in the values for which ``is_affine`` is true, the others being free of them."""
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
    """The value to explain: the first output that is affine in ``sources``, or the last such value before one."""
    found = affine_values(graph, sources)
    for output in graph.outputs:
        if output in found and output not in sources:
            return output
    needed = _sources(graph)
    return next((value for value in reversed(found) if value in needed and value.rank == 2), found[-1])


def _sources(graph: Graph) -> set[Value]:
    """The values on which an output of floats depends, or any output where there is none."""
    wanted = {value for value in graph.outputs if _is_float(value)} or set(graph.outputs)
    for node in reversed(graph.nodes):
        if wanted.intersection(value for value in node.outputs if value is not None):
            wanted.update(node.uses)
    return wanted
