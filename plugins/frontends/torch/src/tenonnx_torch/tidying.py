"""Simplification of exported graphs that leaves the parameters as they are."""

from __future__ import annotations

from collections.abc import Collection

from tenonnx.extend import Graph, Node
from tenonnx_optimize import simplify


def tidied(graph: Graph, held: Collection[str]) -> Graph:
    """``graph`` simplified without a look at the contents of the variables ``held``: each keeps its name and contents.

    What the exporter computes of shapes, types and numbers is constant then, and nothing is that training may change.
    """
    listed = {value.name for value in graph.all_inputs}
    graph.all_inputs += [v for v in graph.variables if v.name in held and v.name not in listed]
    found = simplify(graph)  # counts on no input that has a default
    found.all_inputs = [value for value in found.all_inputs if value.name in listed]
    return found


def simplified(graph: Graph, wanted: bool | None) -> Graph:
    """``graph`` with fewer nodes and new weights if that is ``wanted``.

    With None no weight becomes one with another, and what is in training form is left as it is.
    """
    left = not wanted if wanted is not None else any(map(_is_trained, graph.walk()))
    return graph if left else simplify(graph, join=bool(wanted))


def _is_trained(node: Node) -> bool:
    """Whether a node does what it does while a model is trained."""
    return node.op_type == "Dropout" or bool(node.attributes.get("training_mode"))
