"""What type rules of ops with subgraphs need: the types that a subgraph gives for types of its inputs."""

from __future__ import annotations

from collections.abc import Sequence

from tenonnx.errors import TypeMismatch
from tenonnx.graph.graph import Graph
from tenonnx.graph.types import Type
from tenonnx.op.graph_inference import infer


def subgraph_types(title: str, graph: Graph, formals: Sequence[Type | None]) -> list[Type | None]:
    """The types of the outputs of ``graph`` when its inputs have the types ``formals``.

    Raises ``TypeMismatch`` when the graph has another number of inputs.
    """
    if len(formals) != len(graph.formals):
        raise TypeMismatch(
            f'{title}: the subgraph "{graph.name}" must have {len(formals)} inputs',
            given=f"{len(graph.formals)} inputs",
        )
    for value, kind in zip(graph.formals, formals, strict=True):
        value.type = kind if kind is not None else value.type
    infer(graph, strict=False)
    return [value.type for value in graph.outputs]
