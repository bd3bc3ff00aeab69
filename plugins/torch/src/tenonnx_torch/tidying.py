"""What the exporter writes, by as many nodes as it takes, whatever a module holds left as it is."""

from __future__ import annotations

from collections.abc import Collection

from tenonnx.extend import Graph
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
