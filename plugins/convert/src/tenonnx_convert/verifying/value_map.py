"""Matching of computed values in two graphs, whatever their names."""

from __future__ import annotations

from collections.abc import Container, Hashable, Iterator

from tenonnx.graph.graph import Graph, Node, Value
from tenonnx.op.inference_cache import attributes_key


def corresponding(graph: Graph, other: Graph) -> dict[str, str]:
    """Map names of computed values of ``other`` to those of equal values in ``graph``.

    Values match by name; else by the name and op of their node, which transforms preserve; else if the same ops compute
    them from the same inputs, regardless of weights; else regardless of attributes; else if the same ops lead from them
    to the same outputs. Several matches are paired in order.
    """
    ours, theirs = ({value.name for _, _, value in _outputs(each)} for each in (graph, other))
    result = {name: name for name in ours & theirs}
    numbers: dict[Hashable, int] = {}
    for way in (
        _by_node,
        lambda g: _by_computation(g, numbers),
        lambda g: _by_computation(g, numbers, attributes=False),
        lambda g: _by_use(g, numbers),
    ):
        places = _grouped(way(graph), without=set(result.values()))
        for key, names in _grouped(way(other), without=result).items():
            result.update(zip(names, places.get(key, ()), strict=False))
    return result


def _grouped(values: Iterator[tuple[Value, Hashable]], *, without: Container[str]) -> dict[Hashable, list[str]]:
    """The names of values by key, in order."""
    groups: dict[Hashable, list[str]] = {}
    for value, key in values:
        if value.name not in without:
            groups.setdefault(key, []).append(value.name)
    return groups


def _outputs(graph: Graph) -> Iterator[tuple[Node, int, Value]]:
    for node in graph.nodes:
        for place, value in enumerate(node.outputs):
            if value is not None:
                yield node, place, value


def _by_node(graph: Graph) -> Iterator[tuple[Value, Hashable]]:
    for node, place, value in _outputs(graph):
        if node.name:
            yield value, (node.name, node.domain, node.op_type, place)


def _by_computation(
    graph: Graph, numbers: dict[Hashable, int], *, attributes: bool = True
) -> Iterator[tuple[Value, Hashable]]:
    """Values with a number that identifies how they are computed, optionally regardless of attributes."""
    of: dict[Value, int] = {}

    def number(value: Value | None) -> int:
        if value is None:
            return -1
        if value not in of:
            leaf = ("weight", str(value.type)) if value.is_constant else ("input", value.name)
            of[value] = numbers.setdefault(leaf, len(numbers))
        return of[value]

    for node, place, value in _outputs(graph):
        inputs = tuple(number(v) for v in node.inputs)
        key = node.domain, node.op_type, attributes_key(node.attributes) if attributes else None, inputs, place
        of[value] = numbers.setdefault(key, len(numbers))
        yield value, of[value]


def _by_use(graph: Graph, numbers: dict[Hashable, int]) -> Iterator[tuple[Value, Hashable]]:
    """Values with a number that identifies the ops that lead from them to the outputs."""
    uses: dict[Value, list[Hashable]] = {value: [("output", value.name)] for value in graph.outputs}
    of: dict[Value, int] = {}
    for node in reversed(graph.nodes):
        outputs = [value for value in node.outputs if value is not None]
        of |= {value: numbers.setdefault(("used", *uses.get(value, ())), len(numbers)) for value in outputs}
        for place, value in enumerate(node.inputs):
            if value is not None:
                key = node.domain, node.op_type, place, tuple(of[each] for each in outputs)
                uses.setdefault(value, []).append(key)
    for _, _, value in _outputs(graph):
        if uses.get(value):
            yield value, ("use", of[value])
