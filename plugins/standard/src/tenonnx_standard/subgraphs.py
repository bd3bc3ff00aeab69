"""Output types of subgraphs, for type rules of control flow."""

from __future__ import annotations

from collections.abc import Sequence

from tenonnx.extend import Graph, Type, TypeMismatch, counted
from tenonnx.extend.transforms import infer


def subgraph_types(title: str, graph: Graph, inputs: Sequence[Type | None]) -> list[Type | None]:
    """The types of the outputs of ``graph`` for inputs of types ``inputs``.

    Raises ``TypeMismatch`` if the graph has another number of inputs.
    """
    if len(inputs) != len(graph.inputs):
        raise TypeMismatch(
            f'{title}: the subgraph "{graph.name}" does not have {len(inputs)} inputs',
            given=counted(len(graph.inputs), "input"),
        )
    for value, kind in zip(graph.inputs, inputs, strict=True):
        value._replace_fields(type=kind if kind is not None else value.type)
    infer(graph, strict=False)
    return [value.type for value in graph.outputs]
