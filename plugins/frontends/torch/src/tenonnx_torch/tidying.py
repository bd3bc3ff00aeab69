"""Simplification of exported graphs without changing the parameters."""

from __future__ import annotations

from collections.abc import Collection

from tenonnx.extend import Graph, Node
from tenonnx_optimize import simplify


def tidied(graph: Graph, state: Collection[str]) -> Graph:
    """Simplify ``graph`` without using the contents of the variables ``state``, which keep their names and contents.

    The exporter's computations on shapes, types and literals are folded, but nothing that training may change.
    """
    listed = {value.name for value in graph.all_inputs}
    graph.all_inputs += [v for v in graph.variables if v.name in state and v.name not in listed]
    result = simplify(graph)  # inputs with defaults are not folded
    result.all_inputs = [value for value in result.all_inputs if value.name in listed]
    return result


def simplified(graph: Graph, wanted: bool | None) -> Graph:
    """``graph`` with fewer nodes and new weights if ``wanted``.

    None merges no weights, and leaves a graph in training mode unchanged.
    """
    left = not wanted if wanted is not None else any(map(_is_trained, graph.walk()))
    return graph if left else simplify(graph, join=bool(wanted))


def _is_trained(node: Node) -> bool:
    """Whether a node is in training mode."""
    return node.op_type == "Dropout" or bool(node.attributes.get("training_mode"))
