"""Stable topological sort of nodes."""

from __future__ import annotations

from collections.abc import Iterator

from tenonnx.errors import InvalidCall
from tenonnx.graph.graph import Graph, Node, Value
from tenonnx.graph.properties import check_kinds


def ordered(graph: Graph) -> list[Node]:
    """The nodes of ``graph`` in topological order; a node after one of its consumers is moved before it.

    Raises ``InvalidCall`` for a cycle, naming its nodes, and for a value that has no producer in the graph.
    """
    if _is_ordered(graph):
        return graph.nodes.copy()
    nodes = set(graph.nodes)
    given = {*graph.all_inputs, *graph.captures}
    order: dict[Node, None] = {}
    for node in graph.nodes:
        if all(v.producer in order or _is_there(v, given, order) for v in node.uses):
            order[node] = None
            continue
        way: dict[Node, Iterator[Value]] = {} if node in order else {node: iter(node.uses)}
        while way:
            reader, values = next(reversed(way.items()))
            needed = next((v for v in values if not _is_there(v, given, order)), None)
            if needed is None:
                way.popitem()
                order[reader] = None
                continue
            producer = needed.producer
            if producer is None or producer not in nodes:
                raise _no_producer(needed, reader.title)
            if producer in way:
                raise _cycle(list(way), producer)
            way[producer] = iter(producer.uses)
    for value in graph.outputs:
        if not _is_there(value, given, order):
            raise _no_producer(value, f'graph "{graph.name}" as an output')
    return list(order)


def _is_ordered(graph: Graph) -> bool:
    """Whether nodes read only inputs, variables and outputs of earlier nodes, and all graph outputs are produced."""
    available: set[Value | None] = {value for value in (*graph.all_inputs, *graph.captures) if value.producer is None}
    for node in graph.nodes:
        for value in node.uses:
            if value not in available and (value.producer is not None or value.data is None):
                return False
        available.update(node.outputs)
    return all(v in available or (v.producer is None and v.data is not None) for v in graph.outputs)


def check_whole(graph: Graph) -> None:
    """Raise ``InvalidCall`` for a graph that is inconsistent after changes of its lists by hand.

    Such are inputs or outputs without a producer, nodes out of order, and facts that files cannot represent.
    """
    for nested in graph.nested():
        _check_lists(nested)
        if ordered(nested) != nested.nodes:
            raise InvalidCall(
                f'nodes of graph "{nested.name}" are not in topological order',
                do="change the list inside graph.editing(), which sorts nodes topologically",
            )
    for key, text in graph.metadata.items():
        if not isinstance(text, str):
            raise InvalidCall(f"metadata {key!r} of the graph is not a string", given=repr(text)[:200])
    for domain, version in graph.opsets.items():
        if not isinstance(domain, str) or not isinstance(version, int) or version < 1:
            raise InvalidCall(f"the opset of {domain} is not a positive integer", given=repr(version)[:200])


def _check_lists(graph: Graph) -> None:
    """Raise ``InvalidCall`` if a list of a graph has an item of the wrong type, or a value with another producer."""
    for part in ("nodes", "all_inputs", "variables", "outputs"):
        check_kinds(part, getattr(graph, part))
    for node in graph.nodes:
        for value in node.outputs:
            if value is not None and value.producer is not node:
                what = f'the producer of value "{value.name}" is not the node that has it as an output'
                given = getattr(value.producer, "title", repr(value.producer))
                raise InvalidCall(what, given=given, available=node.title, do="graph.replace(value, another)")


def _is_there(value: Value, given: set[Value], order: dict[Node, None]) -> bool:
    return value.producer in order if value.producer is not None else value.data is not None or value in given


def _no_producer(value: Value, reader: str) -> InvalidCall:
    return InvalidCall(
        f'value "{value.name}" is neither an input, a variable nor an output of a node',
        given=f"{reader} reads it",
        do="replace it first, or insert the node that computes it",
    )


def _cycle(way: list[Node], first: Node) -> InvalidCall:
    """The error for a cycle: nodes that each read from the next one, the last from ``first``."""
    titles = [node.title for node in (*way[way.index(first) :], first)]
    return InvalidCall(
        "the graph has a cycle", given=" reads from\n".join(titles), do="change an input of one of these nodes"
    )
