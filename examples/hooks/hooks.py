"""Post-export hooks: fusion of two nodes, pruning of weights, and a change of the image layout.

``tenonnx convert model.onnx -o out.onnx --hook examples/hooks/hooks.py:gemm_with_relu``, or in Python
``tenonnx.export(graph, path, post_export_hooks=[gemm_with_relu, Pruned(0.5), images_channels_last])``.
"""

from __future__ import annotations

import numpy as np
import onnx
from onnx.external_data_helper import ExternalDataInfo

import tenonnx as tx


def gemm_with_relu(model: onnx.ModelProto) -> None:
    """Fuse each Gemm with its only consumer, a Relu, into onnxruntime's FusedGemm."""
    graph = model.graph
    outputs = {value.name for value in graph.output}
    for relu in [node for node in graph.node if node.op_type == "Relu"]:
        between = relu.input[0]
        gemm = next((node for node in graph.node if between in node.output and node.op_type == "Gemm"), None)
        readers = sum(between in node.input for node in graph.node)
        if gemm is None or readers > 1 or between in outputs:
            continue
        gemm.op_type, gemm.domain = "FusedGemm", "com.microsoft"
        gemm.attribute.append(onnx.helper.make_attribute("activation", "Relu"))
        gemm.output[0] = relu.output[0]
        graph.node.remove(relu)
    if all(opset.domain != "com.microsoft" for opset in model.opset_import):
        model.opset_import.add(domain="com.microsoft", version=1)


class Pruned:
    """Set the smallest elements of every matrix to zero, a ``share`` of all of them."""

    def __init__(self, share: float = 0.5) -> None:
        self.share = share

    def post_process(self, model: onnx.ModelProto) -> None:
        for tensor in model.graph.initializer:
            if tensor.data_type != onnx.TensorProto.FLOAT or len(tensor.dims) < 2:
                continue
            # Tensors of a large model may be external: basepath is the folder of their files.
            array = onnx.numpy_helper.to_array(tensor, ExternalDataInfo(tensor).basepath)
            kept = np.abs(array) >= np.quantile(np.abs(array), self.share)
            tensor.CopyFrom(onnx.numpy_helper.from_array(array * kept, tensor.name))


def images_channels_last(model: onnx.ModelProto, graph: tx.Graph) -> None:
    """Change the file's image inputs to ``[n, h, w, c]``, where the graph has ``[n, c, h, w]``."""
    images = {value.name for value in graph.inputs if value.rank == 4}
    for value in model.graph.input:
        if value.name not in images:
            continue
        for node in model.graph.node:
            node.input[:] = [f"{value.name}/nchw" if name == value.name else name for name in node.input]
        turn = onnx.helper.make_node("Transpose", [value.name], [f"{value.name}/nchw"], perm=[0, 3, 1, 2])
        model.graph.node.insert(0, turn)
        n, c, h, w = (
            onnx.TensorShapeProto.Dimension.FromString(d.SerializeToString()) for d in value.type.tensor_type.shape.dim
        )
        del value.type.tensor_type.shape.dim[:]
        value.type.tensor_type.shape.dim.extend([n, h, w, c])
