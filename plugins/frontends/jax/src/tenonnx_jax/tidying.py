"""Simplification of traced graphs without changing the parameters."""

from __future__ import annotations

from collections.abc import Collection

from tenonnx.extend import Graph
from tenonnx.extend.transforms import prune
from tenonnx_jax.layouts import lay_out
from tenonnx_optimize import channels_first, fuse, simplify


def tidied(graph: Graph, state: Collection[str]) -> Graph:
    """Simplify ``graph`` without using the contents of the variables ``state``, which keep their names."""
    graph = prune(graph)
    lay_out(graph, state)
    listed = {value.name for value in graph.all_inputs}
    graph.all_inputs += [v for v in graph.variables if v.name in state and v.name not in listed]
    result = fuse(simplify(channels_first(graph)))  # inputs with defaults are not folded
    result.all_inputs = [value for value in result.all_inputs if value.name in listed]
    return result
