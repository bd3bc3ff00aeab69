"""The body of a call's op as a graph, expanded one level."""

from __future__ import annotations

from collections.abc import Sequence

from tenonnx import Graph, Node, TenonnxError, Value, infer
from tenonnx.extend import known_op
from tenonnx.extend.transforms import decompose, inline_functions
from tenonnx.tools import Op


def body_of(node: Node, graph: Graph) -> Sequence[tuple[str, Graph]]:
    """The body of a node's op or model-local function for its inputs; empty if it has none."""
    alone = Graph(node.op_type, opsets={**graph.opsets, node.domain: node.version})
    alone.registry, alone.functions = graph.registry, dict(graph.functions)
    with_contents: list[Value | None] = []
    for place, value in enumerate(node.inputs):
        name = f"input{place}"
        if value is None:
            with_contents.append(None)
        elif value.data is not None:
            with_contents.append(alone.variable(value.name or name, value.data))
        elif value.type is not None:
            with_contents.append(alone.input(value.name or name, value.type))
        else:
            return ()
    try:
        outputs = [None if v is None else Value(v.name, graph=alone) for v in node.outputs]
        alone.append(Node(node.op, node.version, with_contents, dict(node.attributes), outputs, name=node.name))
        alone.outputs = [value for value in outputs if value is not None]
        if not isinstance(node.op, Op):
            inlined = inline_functions(alone)
        else:
            op = known_op(alone.nodes[0])
            inlined = decompose(alone, keep=lambda call: call.op is not op)
        infer(inlined, strict=False)
    except TenonnxError:
        return ()
    same = [each.op_type for each in inlined.nodes] == [node.op_type]
    return () if same else [("body", inlined)]
