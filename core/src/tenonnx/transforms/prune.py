"""Dead code elimination."""

from __future__ import annotations

from collections.abc import Collection

from tenonnx.graph.graph import Graph, Node, Value
from tenonnx.transforms.rewrite import copy_graph


def prune(graph: Graph, *, keep_variables: bool = False) -> Graph:
    """A copy of ``graph`` without the nodes and, unless kept, the variables that no output depends on."""
    pruned = copy_graph(graph)
    drop_dead_nodes(pruned)
    if not keep_variables:
        used = {*pruned.uses(), *pruned.outputs, *pruned.all_inputs}
        pruned.variables = [v for v in pruned.variables if v in used]
    return pruned


def drop_dead_nodes(graph: Graph) -> None:
    """Remove nodes that no output depends on from ``graph`` itself and from the subgraphs of the other nodes."""
    for node in graph.nodes:
        if node.subgraphs:
            _drop_inside(node)
    graph.nodes = needed_nodes(graph, graph.outputs)


def _drop_inside(node: Node) -> None:
    read: set[int] = set()
    for subgraph in node.subgraphs:
        drop_dead_nodes(subgraph)
        used = {*subgraph.uses(), *subgraph.outputs}
        read |= {place for place, value in enumerate(subgraph.captures) if value in used}
    for subgraph in node.subgraphs:
        subgraph.captures = [value for place, value in enumerate(subgraph.captures) if place in read]
    node._replace_fields(captures=tuple(value for place, value in enumerate(node.captures) if place in read))


def needed_nodes(graph: Graph, wanted: Collection[Value], given: Collection[Value] = ()) -> list[Node]:
    """The nodes, in order, that compute ``wanted`` from ``given`` and the graph's inputs."""
    known, needed, kept = set(given), set(wanted), []
    for node in reversed(graph.nodes):
        if any(v in needed and v not in known for v in node.outputs):
            needed.update(node.uses)
            kept.append(node)
    return kept[::-1]
