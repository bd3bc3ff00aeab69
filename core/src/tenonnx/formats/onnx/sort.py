"""Stable topological sort of the nodes of a file."""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from typing import TYPE_CHECKING

from tenonnx.errors import InvalidModel

if TYPE_CHECKING:
    import onnx


def sorted_nodes(graph: onnx.GraphProto, known: set[str]) -> list[onnx.NodeProto]:
    """The nodes in topological order, as close to the file's order as possible.

    Raises ``InvalidModel`` naming a node of a cycle.
    """
    nodes = list(graph.node)
    producer = {name: k for k, node in enumerate(nodes) for name in node.output if name}
    waits: list[int] = []
    readers: list[list[int]] = [[] for _ in nodes]
    for k, node in enumerate(nodes):
        needs = {producer[name] for name in read_names(node) if name in producer and name not in known}
        waits.append(len(needs))
        for needed in needs:
            readers[needed].append(k)
    ready = [k for k, count in enumerate(waits) if count == 0]
    order: list[onnx.NodeProto] = []
    while ready:
        k = heapq.heappop(ready)
        order.append(nodes[k])
        for reader in readers[k]:
            waits[reader] -= 1
            if waits[reader] == 0:
                heapq.heappush(ready, reader)
    if len(order) < len(nodes):
        stuck = [node for node, count in zip(nodes, waits, strict=True) if count]
        names = ", ".join(f'"{n.name or n.op_type}" -> {", ".join(map(str, n.output))}' for n in stuck[:5])
        raise InvalidModel(
            f'graph "{graph.name}" has a cycle', given=f"{len(stuck)} nodes depend on each other: {names}"
        )
    return order


def read_names(node: onnx.NodeProto) -> Iterable[str]:
    """The names that a node reads, including those captured by its subgraphs."""
    yield from (name for name in node.input if name)
    for attribute in node.attribute:
        for graph in [attribute.g, *attribute.graphs] if attribute.HasField("g") or len(attribute.graphs) else []:
            inside = {i.name for i in graph.input} | {t.name for t in graph.initializer}
            inside |= {s.values.name for s in graph.sparse_initializer}
            inside |= {name for inner in graph.node for name in inner.output}
            for inner in graph.node:
                yield from (name for name in read_names(inner) if name not in inside)
            yield from (o.name for o in graph.output if o.name not in inside)
