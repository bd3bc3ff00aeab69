"""Fixing the dims of graph inputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tenonnx.graph.definitions import in_registry_of_graph
from tenonnx.graph.graph import Graph
from tenonnx.op.graph_inference import ensure_inferred, infer
from tenonnx.op.op import Op
from tenonnx.transforms.rewrite import copy_graph


@in_registry_of_graph
def fix_shapes(graph: Graph, shapes: Mapping[str, Sequence[int | str | None]]) -> Graph:
    """A copy of ``graph`` with these dims of inputs; numbers replace symbols wherever these occur.

    None keeps a dim. The copy declares the inferred types. Raises ``InvalidCall`` for an unknown input, another rank,
    and a number that differs from a fixed one, ``InvalidModel`` if a node does not accept the sizes.
    """
    fixed = untyped(graph)
    infer(fixed, shapes)
    return fixed


def untyped(graph: Graph) -> Graph:
    """A copy without inferable types, so that an export declares inferred ones."""
    copy = copy_graph(graph)
    ensure_inferred(copy)
    for node in copy.walk():
        for value in node.outputs if isinstance(node.op, Op) else ():
            if value is not None:
                value.forget()
    copy.forget_declared()
    return copy
