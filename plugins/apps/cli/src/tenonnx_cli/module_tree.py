"""The nodes of a graph grouped by module."""

from __future__ import annotations

import ast
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tenonnx import Graph, Node

#: Metadata key in which PyTorch's exporter lists the modules of a node.
SCOPES = "pkg.torch.onnx.name_scopes"


@dataclass
class Module:
    """A module and its contents: ``nodes`` includes those of nested modules."""

    name: str
    nodes: int = 0
    weights: int = 0
    ops: Counter[str] = field(default_factory=Counter)
    modules: dict[str, Module] = field(default_factory=dict)

    def to_dict(self) -> dict[str, object]:
        inner = [each.to_dict() for each in self.modules.values()]
        return {"name": self.name, "nodes": self.nodes, "weights": self.weights, "ops": self.ops, "modules": inner}

    def rows(self, depth: int = 0) -> list[tuple[str, str, str, str]]:
        """A row for each module: its name, nodes, parameters, and its direct ops."""
        ops = ", ".join(f"{op} {count}" if count > 1 else op for op, count in self.ops.most_common(6))
        more = f" and {len(self.ops) - 6} more" if len(self.ops) > 6 else ""
        row = f"{'  ' * depth}{self.name}", f"{self.nodes:,}", f"{self.weights:,}", f"{ops}{more}"
        return [row, *(row for each in self.modules.values() for row in each.rows(depth + 1))]


def module_tree(graph: Graph) -> Module:
    """The modules of a graph, in the order of their first nodes; a weight belongs to its first reader."""
    root, seen = Module(graph.name), set()
    for node in graph.nodes:
        sizes = 0
        for value in node.inputs:
            if value is not None and value.data is not None and value.is_constant and value not in seen:
                seen.add(value)
                sizes += value.data.array().size
        here = root
        path = module_path(node)
        for part in ("", *path):
            here = here.modules.setdefault(part, Module(part)) if part else here
            here.nodes += 1
            here.weights += sizes
        here.ops[node.op_type] += 1
    return root


def module_path(node: Node) -> list[str]:
    """The modules that contain a node: those listed by the exporter, else the parts of its name."""
    listed = {entry.key: entry.value for entry in getattr(node.origin, "metadata_props", ())}.get(SCOPES)
    if listed is not None:
        try:
            scopes = [scope for scope in ast.literal_eval(listed) if isinstance(scope, str)]
        except (ValueError, SyntaxError):
            scopes = []
        ends = [scope.rpartition(".")[2] for scope in scopes[:-1]]
        return [end for end in ends if end]
    return [part for part in node.name.split("/")[:-1] if part]
