"""What would help the nodes that have no form in a target."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace

from tenonnx.graph.graph import Graph
from tenonnx.graph.types import TensorType
from tenonnx.graph.values import Node
from tenonnx.op.op import Op
from tenonnx.registry.registry import Registry
from tenonnx.transforms.target import Target

#: Tries to move nodes alone to a target, and tells which of them have no form there.
Attempt = Callable[[Target, Collection[Node]], Collection[Node]]


def first_versions(graph: Graph, target: Target, refused: Collection[Node], attempt: Attempt) -> dict[Node, int]:
    """The first version of ai.onnx above the target's, and up to the graph's, at which refused nodes have a form."""
    version = target.version("ai.onnx")
    found: dict[Node, int] = {}
    if version is None or target.runtime is not None or target.accepts is not None:
        return found
    for newer in range(version + 1, graph.opsets.get("ai.onnx", 0) + 1):
        if not refused:
            break
        still = attempt(replace(target, opsets={**target.opsets, "ai.onnx": newer}), refused)
        found.update((node, newer) for node in refused if node not in still)
        refused = [node for node in refused if node in still]
    return found


def advice(node: Node, target: Target, registry: Registry, first: int | None) -> str:
    """What would help a refused node, which has a form from version ``first`` of ai.onnx on, if at any."""
    op, version = node.op, target.version(node.domain)
    missing = [n for n in body_nodes(op) if not isinstance(n.op, Op)] if isinstance(op, Op) else [node]
    packages = {registry.provider(n.domain, n.op_type) for n in missing}
    if missing:
        known = " ".join(sorted(package for package in packages if package))
        return f"pip install {known}" if known else "install or write a package that defines the op"
    ways = [] if first is None else [f"go to version {first} of ai.onnx or newer"]
    if version is None and target.runtime is None:
        ways.append(f"allow domain {node.domain}")
    if ways:
        return ", or ".join(ways)
    kinds = [v.type for v in node.inputs if v is not None]
    unknown = any(kind is None or (isinstance(kind, TensorType) and kind.shape is None) for kind in kinds)
    if unknown and isinstance(op, Op) and not op.primitive:
        return "give the graph's inputs their shapes (--input-shapes), as the types here are not known"
    if isinstance(op, Op) and target.runtime is None and node.domain != "ai.onnx" and (version or 0) < op.since:
        return f"go to version {op.since} of {node.domain} or newer"
    return "replace the node by others, or go to another target"


def body_nodes(op: Op) -> list[Node]:
    """What the body of a local function holds; other ops have no body that is a graph."""
    body: Graph | None = getattr(op, "body", None)
    return [] if body is None else list(body.walk())
