"""Text summary of a graph."""

from __future__ import annotations

from collections import Counter

from tenonnx.graph.graph import Graph
from tenonnx.op.graph_inference import ensure_inferred

#: Models with more bytes of weights are only run for accuracy measurements on request or with data.
LARGEST_MEASURED = 1 << 31


def weight_bytes(graph: Graph) -> int:
    """Total bytes of the variables of the main graph."""
    return sum(value.data.nbytes for value in graph.variables if value.data is not None)


def summary(graph: Graph, *, nodes: int = 40) -> str:
    """Inputs, outputs, ops and the first ``nodes`` nodes of ``graph``, as text."""
    ensure_inferred(graph)
    opsets = ", ".join(f"{domain} {version}" for domain, version in graph.opsets.items()) or "none"
    ops = Counter(n.op_type if n.domain == "ai.onnx" else f"{n.domain}::{n.op_type}" for n in graph.walk())
    lines = [
        f'graph "{graph.name}"  opsets {opsets}  IR {graph.ir_version or "-"}',
        *(f"  input   {v.name}: {v.type or '?'}" for v in graph.inputs),
        *(f"  output  {v.name}: {v.type or '?'}" for v in graph.outputs),
        f"  {len(graph.variables)} variables, {weight_bytes(graph):,} bytes; {sum(ops.values())} nodes",
        "  ops     " + ", ".join(f"{name} {count}" for name, count in ops.most_common()),
    ]
    for node in graph.nodes[:nodes]:
        inputs = ", ".join("" if v is None else v.name for v in node.inputs)
        outputs = ", ".join("" if v is None else f"{v.name}: {v.type or '?'}" for v in node.outputs)
        lines.append(f"  {outputs} = {node.op_type}({inputs})")
    if len(graph.nodes) > nodes:
        lines.append(f"  ... and {len(graph.nodes) - nodes} more nodes")
    return "\n".join(lines)
