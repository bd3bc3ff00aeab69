"""Nodes by their keys in a drawing, and by their labels."""

from __future__ import annotations

from collections.abc import Iterator

from tenonnx import Graph, Node
from tenonnx_cli.drawing import subgraphs


def keyed(graph: Graph, key: str = "", label: str = "") -> Iterator[tuple[str, str, Node]]:
    """All nodes, including those of subgraphs, with their keys in a drawing and their paths in reports."""
    for number, node in enumerate(graph.nodes):
        for name, inner in subgraphs(node):
            attribute = name.partition(".")[0]
            yield from keyed(inner, f"{key}n{number}/{name}/", f"{label}{node.label}/{attribute}/")
        yield f"{key}n{number}", f"{label}{node.label}", node
