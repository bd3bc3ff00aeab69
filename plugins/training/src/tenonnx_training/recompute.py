"""Gradient checkpointing (Chen et al. 2016): the backward pass recomputes the outputs of chosen nodes."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import numpy as np

import tenonnx_standard as ops
from tenonnx.extend import DType, Graph, InvalidCall, Node, TensorType, Value, constant
from tenonnx.extend.transforms import Builder, interpreting, needed_nodes
from tenonnx_training.parameters import matches
from tenonnx_training.weight_readers import paths_of


def check_patterns(graph: Graph, patterns: Sequence[str]) -> None:
    """Raise ``InvalidCall`` for a pattern that matches no node."""
    for pattern in patterns:
        if not any(_matches(node, pattern) for node in graph.nodes):
            names = [paths_of(node)[-1] for node in graph.nodes if paths_of(node)]
            raise InvalidCall(
                f'recompute "{pattern}" matches no node',
                available=", ".join(names[:50]) or "nodes without names",
            )


def recompute(graph: Graph, patterns: Sequence[str], wanted: Sequence[str], fixed: Collection[str]) -> None:
    """Make the backward pass of ``graph``, all nodes that ``wanted`` does not need, recompute segments of the forward
    pass.

    The nodes of one pattern are a segment. Its inputs and its outputs to later nodes are kept; values inside are
    computed twice. ``fixed`` inputs are always in memory. The second computation must wait until the backward pass
    arrives, or a runtime would keep both results: so it reads the inputs plus a zero that depends on the backward pass.
    This also applies to running statistics, which onnxruntime updates in place.
    """
    values = {value.name: value for value in graph.values()}
    forward = set(needed_nodes(graph, [values[name] for name in wanted]))
    taken: set[Node] = set()
    for pattern in patterns:
        stretch = [node for node in graph.nodes if node in forward and node not in taken and _matches(node, pattern)]
        taken.update(stretch)
        _recompute(graph, stretch, forward, {values[name] for name in fixed})


def _matches(node: Node, pattern: str) -> bool:
    within = [pattern, f"{pattern}/*", f"{pattern}.*"]
    return matches(([value.name for value in node.outputs if value is not None], paths_of(node)), within)


def _recompute(graph: Graph, stretch: Sequence[Node], forward: Collection[Node], fixed: Collection[Value]) -> None:
    late = [node for node in graph.nodes if node not in forward]
    again, read, entering = _copied_segment(graph, stretch, forward, late)
    first = next((k for k, node in enumerate(late) if any(v in read for v in node.uses)), 0)
    arrival = _arrival(late[:first], late[first:])
    if arrival is None:  # the backward pass begins here: nothing is kept for long
        return
    start = len(graph.nodes)
    copies = _delayed(graph, [v for v in entering if v not in fixed], arrival)
    for node in again:
        if any(v in copies for v in node.uses):
            graph.append(_copied_node(graph, node, copies))
    fresh, position = graph.nodes[start:], graph.nodes.index(late[first])
    graph.nodes[start:] = []
    graph.nodes[position:position] = fresh
    _read_instead(late, {v: copies[v] for v in read if v in copies})


def _copied_segment(
    graph: Graph, stretch: Sequence[Node], forward: Collection[Node], late: Sequence[Node]
) -> tuple[list[Node], set[Value], list[Value]]:
    """The nodes to recompute, their outputs that the ``late`` nodes read, and the float inputs of the segment."""
    inside = {node for node in stretch if not node.subgraphs and any(map(_is_large, node.outputs))}
    computed, uses = {v for node in inside for v in node.outputs if v is not None and _is_large(v)}, graph.uses()
    kept = {v for v in computed if any(n in forward and n not in inside for n in uses.get(v, ()))}.union(graph.outputs)
    inner = computed - kept
    read = {v for node in late for v in node.uses if v in inner}
    again = [node for node in needed_nodes(graph, read, kept) if node in inside]
    outer = dict.fromkeys(v for node in again for v in node.uses if v not in inner)
    return again, read, [v for v in outer if v.data is None and _is_float(v)]


def _delayed(graph: Graph, values: Sequence[Value], arrival: Value) -> dict[Value, Value]:
    """Each value plus a zero that depends on ``arrival``."""
    with interpreting(Builder(graph, prefix="recomputed")):
        zero = _zero(arrival)
        return {value: value + ops.cast_like(zero, value) for value in values}


def _read_instead(nodes: Sequence[Node], replaced: Mapping[Value, Value]) -> None:
    """Replace inputs of ``nodes``."""
    for node in nodes:
        node._replace_fields(
            inputs=[v if v is None else replaced.get(v, v) for v in node.inputs],
            captures=[replaced.get(v, v) for v in node.captures],
        )


def _arrival(before: Collection[Node], after: Sequence[Node]) -> Value | None:
    """A float from the nodes ``before`` that is read by the first node of ``after`` that reads one."""
    earlier = {value for node in before for value in node.outputs}
    return next((v for node in after for v in node.uses if v in earlier and _is_float(v)), None)


def _zero(arrival: Value) -> Value:
    """A zero that depends on ``arrival`` and that no optimizer folds: whether a number is above infinity."""
    number = ops.gather(ops.reshape(arrival, [-1]), 0)
    return ops.cast(ops.greater(number, constant(np.inf, number.dtype)), to=DType.float32)  # type: ignore[no-any-return]


def _copied_node(graph: Graph, node: Node, copies: dict[Value, Value]) -> Node:
    """A copy of ``node`` that reads ``copies``; its outputs are added to them."""
    outputs: list[Value | None] = []
    for value in node.outputs:
        copy = None
        if value is not None and _is_large(value):
            copy = copies[value] = Value(graph.unique_name(f"{value.name}/again"), value.type, graph=graph)
        outputs.append(copy)
    inputs = [None if v is None else copies.get(v, v) for v in node.inputs]
    name = f"{node.name}/again" if node.name else ""
    return Node(node.op, node.version, inputs, node.attributes, outputs, name=name)


def _is_large(value: Value | None) -> bool:
    """Whether a value may need much memory: it is neither a constant nor a shape computation."""
    return value is not None and value.data is None and value.symbolic_contents is None


def _is_float(value: Value) -> bool:
    return isinstance(value.type, TensorType) and value.type.dtype.is_float
