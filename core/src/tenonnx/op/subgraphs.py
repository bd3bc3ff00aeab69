"""What type rules of ops with subgraphs need: the types that a subgraph gives for types of its inputs."""

from __future__ import annotations

from collections.abc import Sequence

from tenonnx.errors import TypeMismatch, counted
from tenonnx.graph.graph import Graph
from tenonnx.graph.types import Type
from tenonnx.op.graph_inference import infer


def subgraph_types(title: str, graph: Graph, inputs: Sequence[Type | None]) -> list[Type | None]:
    """The types of the outputs of ``graph`` when its inputs have the types ``inputs``.

    Raises ``TypeMismatch`` when the graph has another number of inputs.
    """
    if len(inputs) != len(graph.inputs):
        raise TypeMismatch(
            f'{title}: the subgraph "{graph.name}" must have {len(inputs)} inputs',
            given=counted(len(graph.inputs), "input"),
        )
    for value, kind in zip(graph.inputs, inputs, strict=True):
        value.become(type=kind if kind is not None else value.type)
    infer(graph, strict=False)
    return [value.type for value in graph.outputs]
