"""Forms of a QDQ model in a file: weights as floats, and ops of onnxruntime's domain."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

import tenonnx as tx

if TYPE_CHECKING:
    import onnx

_SUFFIX = "/quantized"


def store_floats(message: onnx.ModelProto, original: tx.Graph) -> None:
    """Store quantized weights as the floats of ``original``, each with a QuantizeLinear behind it."""
    from onnx import NodeProto, helper, numpy_helper

    graph = message.graph
    inputs = (value for node in original.nodes for value in node.inputs)
    constants = {value.name: value for value in inputs if value is not None and value.is_constant}
    quantized = {each.name: each for each in graph.initializer if each.name.removesuffix(_SUFFIX) in constants}
    nodes: list[NodeProto] = []
    for node in graph.node:
        held = quantized.get(node.input[0]) if node.op_type == "DequantizeLinear" else None
        if held is not None:
            name = held.name.removesuffix(_SUFFIX)
            if held in graph.initializer:
                graph.initializer.remove(held)
                graph.initializer.append(numpy_helper.from_array(np.asarray(constants[name].data), name))
                made = helper.make_node(
                    "QuantizeLinear", [name, *node.input[1:]], [held.name], f"{name}/QuantizeLinear"
                )
                made.attribute.extend(a for a in node.attribute if a.name in ("axis", "block_size"))
                nodes.append(made)
        nodes.append(node)
    del graph.node[:]
    graph.node.extend(nodes)


def use_contrib_ops(message: onnx.ModelProto) -> None:
    """Move QuantizeLinear and DequantizeLinear to the domain ``com.microsoft``."""
    for node in message.graph.node:
        if node.op_type in ("QuantizeLinear", "DequantizeLinear"):
            node.domain = "com.microsoft"
    if all(each.domain != "com.microsoft" for each in message.opset_import):
        message.opset_import.add(domain="com.microsoft", version=1)
