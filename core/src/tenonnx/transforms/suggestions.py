"""Suggestions for nodes that cannot be converted."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from tenonnx.graph.graph import Graph, Node
from tenonnx.graph.types import TensorType
from tenonnx.op.op import Op
from tenonnx.registry.registry import Registry
from tenonnx.transforms.missing_ops import absence, remedy
from tenonnx.transforms.rewrite import body_nodes
from tenonnx.transforms.target import Target


def newer_targets(graph: Graph, target: Target) -> Iterator[Target]:
    """The target at each newer version of ai.onnx, up to the graph's; empty if it limits more than versions."""
    version = target.version("ai.onnx")
    if version is not None and target.runtime is None and target.accepts is None:
        import onnx

        # ignores versions beyond those that onnx knows
        last = min(graph.opsets.get("ai.onnx", 0), onnx.defs.onnx_opset_version())
        for newer in range(version + 1, last + 1):
            yield replace(target, opsets={**target.opsets, "ai.onnx": newer})


def advice(node: Node, target: Target, registry: Registry, first: int | None) -> str:
    """Advice for a node that the target refuses; ``first`` is the version of ai.onnx that supports it, if any."""
    op, version = node.op, target.version(node.domain)
    missing = [n for n in body_nodes(op) if not isinstance(n.op, Op)] if isinstance(op, Op) else [node]
    if missing:
        return remedy(absence(registry, n.domain, n.op_type, n.version) for n in missing)
    ways = [] if first is None else [f"go to version {first} of ai.onnx or newer"]
    if version is None and target.runtime is None:
        ways.append(f"allow domain {node.domain}")
    if ways:
        return ", or ".join(ways)
    kinds = [v.type for v in node.inputs if v is not None]
    unknown = any(kind is None or (isinstance(kind, TensorType) and kind.shape is None) for kind in kinds)
    if unknown and isinstance(op, Op) and not op.primitive:
        return "give the shapes of the graph inputs (--input-shapes), as the types here are unknown"
    if isinstance(op, Op) and target.runtime is None and node.domain != "ai.onnx" and (version or 0) < op.since:
        return f"go to version {op.since} of {node.domain} or newer"
    return "replace the node by others, or choose another target"
