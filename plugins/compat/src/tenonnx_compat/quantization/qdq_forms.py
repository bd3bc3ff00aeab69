"""Post-processing of QDQ models: float weights with QuantizeLinear, and the ops of onnxruntime's domain."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

import tenonnx as tx

if TYPE_CHECKING:
    import onnx

_SUFFIX = "/quantized"


def store_floats(message: onnx.ModelProto, original: tx.Graph) -> None:
    """Replace quantized weights by the floats of ``original``, each followed by a QuantizeLinear."""
    from onnx import NodeProto, helper, numpy_helper

    graph = message.graph
    inputs = (value for node in original.nodes for value in node.inputs)
    constants = {value.name: value for value in inputs if value is not None and value.is_constant}
    quantized = {each.name: each for each in graph.initializer if each.name.removesuffix(_SUFFIX) in constants}
    nodes: list[NodeProto] = []
    for node in graph.node:
        tensor = quantized.get(node.input[0]) if node.op_type == "DequantizeLinear" else None
        if tensor is not None:
            name = tensor.name.removesuffix(_SUFFIX)
            if tensor in graph.initializer:
                graph.initializer.remove(tensor)
                graph.initializer.append(numpy_helper.from_array(np.asarray(constants[name].data), name))
                quantize = helper.make_node(
                    "QuantizeLinear", [name, *node.input[1:]], [tensor.name], f"{name}/QuantizeLinear"
                )
                quantize.attribute.extend(a for a in node.attribute if a.name in ("axis", "block_size"))
                nodes.append(quantize)
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
