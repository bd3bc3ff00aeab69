"""Dims of graph inputs as numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tenonnx.graph.definitions import in_registry_of_graph
from tenonnx.graph.graph import Graph
from tenonnx.op.graph_inference import ensure_inferred, infer
from tenonnx.op.op import Op
from tenonnx.transforms.rewrite import copy_graph


@in_registry_of_graph
def fix_shapes(graph: Graph, shapes: Mapping[str, Sequence[int | str | None]]) -> Graph:
    """A copy of ``graph`` whose inputs have these dims: numbers for symbols, wherever those stand.

    A dim that is given as None stays. The copy declares the types that follow. Raises ``InvalidCall`` for an input that
    there is not, another rank, and a number in place of another, ``InvalidModel`` where a node does not take the sizes.
    """
    fixed = untyped(graph)
    infer(fixed, shapes)
    return fixed


def untyped(graph: Graph) -> Graph:
    """A copy that knows nothing of computed values but what nobody else can tell, and declares types anew."""
    copy = copy_graph(graph)
    ensure_inferred(copy)
    for node in copy.walk():
        for value in node.outputs if isinstance(node.op, Op) else ():
            if value is not None:
                value.forget()
    copy.forget_declared()
    return copy
