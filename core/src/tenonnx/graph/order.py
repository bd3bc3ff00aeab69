"""The order of nodes: each after what it reads, near where it stands."""

from __future__ import annotations

from collections.abc import Iterator

from tenonnx.errors import InvalidCall
from tenonnx.graph.graph import Graph
from tenonnx.graph.values import Node, Value


def ordered(graph: Graph) -> list[Node]:
    """The nodes of ``graph``, those that stand after a reader of theirs moved ahead of it.

    Raises ``InvalidCall`` for a cycle, naming the way round, and for a value that nothing in the graph gives.
    """
    held = set(graph.nodes)
    given = {*graph.all_inputs, *graph.captures}
    order: dict[Node, None] = {}
    for node in graph.nodes:
        way: dict[Node, Iterator[Value]] = {} if node in order else {node: iter(node.uses)}
        while way:
            reader, values = next(reversed(way.items()))
            needed = next((v for v in values if not _is_there(v, given, order)), None)
            if needed is None:
                way.popitem()
                order[reader] = None
                continue
            producer = needed.producer
            if producer is None or producer not in held:
                raise _nothing_gives(needed, reader.title)
            if producer in way:
                raise _cycle(list(way), producer)
            way[producer] = iter(producer.uses)
    for value in graph.outputs:
        if not _is_there(value, given, order):
            raise _nothing_gives(value, f'graph "{graph.name}" as an output')
    return list(order)


def _is_there(value: Value, given: set[Value], order: dict[Node, None]) -> bool:
    return value.producer in order if value.producer is not None else value.data is not None or value in given


def _nothing_gives(value: Value, reader: str) -> InvalidCall:
    return InvalidCall(
        f'value "{value.name}" must be an input, a variable or what a node of the graph computes',
        given=f"{reader} reads it, and nothing gives it",
        do="replace it first, or put in the node that computes it",
    )


def _cycle(way: list[Node], first: Node) -> InvalidCall:
    """The error for nodes that each read the next one, the last of them ``first``."""
    titles = [node.title for node in (*way[way.index(first) :], first)]
    return InvalidCall(
        "a graph must have no cycle", given=" reads from\n".join(titles), do="let one read another value"
    )
