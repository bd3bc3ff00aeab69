"""Outputs that depend on random numbers."""

from __future__ import annotations

from collections.abc import Sequence

from tenonnx.graph.graph import Graph, Node, Value
from tenonnx.op.op import Op
from tenonnx.registry.extensions import find_extension
from tenonnx.transforms.rewrite import Call, Rewriter

#: Reason for not comparing an output that depends on random numbers.
DRAWN = "drawn at random"


def drawn_outputs(graph: Graph) -> set[str]:
    """The outputs that depend on random numbers; inactive nodes, such as a Dropout in inference, do not count."""
    if not any(map(_draws, graph.nodes)):
        return set()
    graph = (find_extension("simplify") or _drawing_expanded)(graph)
    drawn: set[Value] = set()
    for node in graph.nodes:
        if _draws(node) or any(v in drawn for v in node.uses):
            drawn.update(v for v in node.outputs if v is not None)
    return {v.name for v in graph.outputs if v in drawn}


def _drawing_expanded(graph: Graph) -> Graph:
    """The graph with ops that may draw expanded, since bodies of inactive ones draw nothing."""

    def decide(rewriter: Rewriter, call: Call) -> Sequence[Value | None] | None:
        return None if call.op.pure or call.op.primitive else rewriter.expand(call)

    return Rewriter(graph, decide).run()


def _draws(node: Node) -> bool:
    inside = (inner for subgraph in node.subgraphs for inner in subgraph.walk())
    return any(isinstance(n.op, Op) and not n.op.pure for n in (node, *inside))
