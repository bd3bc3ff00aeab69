"""Fusion of groups of float ops between DequantizeLinear and QuantizeLinear into QLinear ops."""

import numpy as np
import pytest

import tenonnx as tx
import tenonnx_standard as ops
from tenonnx_quantized.quantize import dequantize_linear, quantize_linear


def group(function, count, opset, quantized="uint8", scale=0.1):
    graph = tx.Graph(opsets={"ai.onnx": opset, "com.microsoft": 1})
    inputs = [graph.input(f"x{k}", quantized, (1, 4, 6, 6)) for k in range(count)]
    parameters = [(np.float32(scale * (k + 1)), np.dtype(quantized).type(3 + k)) for k in range(count + 1)]
    floats = [dequantize_linear(x, *held) for x, held in zip(inputs, parameters, strict=False)]
    graph.output("y", quantize_linear(function(*floats), *parameters[-1]))
    return tx.retarget(graph, opset, domains=["ai.onnx", "com.microsoft"])


GROUPS = {
    "QLinearAdd": (ops.add, 2),
    "QLinearMul": (ops.mul, 2),
    "QLinearSigmoid": (ops.sigmoid, 1),
    "QLinearLeakyRelu": (lambda x: ops.leaky_relu(x, alpha=0.3), 1),
    "QLinearAveragePool": (lambda x: ops.average_pool(x, kernel_shape=[2, 2], strides=[2, 2]), 1),
    "QLinearGlobalAveragePool": (ops.global_average_pool, 1),
    "QLinearReduceMean": (lambda x: ops.reduce_mean(x, [2, 3]), 1),
    "QLinearWhere": (lambda x, y: ops.where(np.arange(6) > 2, x, y), 2),
}


@pytest.mark.parametrize("opset", [13, 21])
@pytest.mark.parametrize("quantized", ["uint8", "int8"])
@pytest.mark.parametrize("name", GROUPS)
def test_groups_are_fused_if_requested(name, quantized, opset):
    graph = group(*GROUPS[name], opset, quantized)
    result = tx.fuse(graph, [f"com.microsoft::{name}"])
    assert [node.op_type for node in result.nodes] == [name]
    tx.verify(graph, result).raise_if_failed()


def test_groups_are_not_fused_by_default():
    assert len(tx.fuse(group(ops.add, 2, 21)).nodes) == 4


def test_several_groups_and_nodes_in_between():
    def body(x, y):
        middle = quantize_linear(ops.sigmoid(x + y), np.float32(0.01), np.uint8(0))
        return ops.relu(dequantize_linear(middle, np.float32(0.01), np.uint8(0)))

    graph = group(body, 2, 17)
    result = tx.fuse(graph, ["com.microsoft::QLinearSigmoid", "com.microsoft::QLinearAdd"])
    assert len(result.nodes) == len(graph.nodes)  # neither op alone has quantized inputs and outputs
    single = group(
        lambda x, y: (
            dequantize_linear(quantize_linear(x + y, np.float32(0.2), np.uint8(1)), np.float32(0.2), np.uint8(1)) * x
        ),
        2,
        17,
    )
    assert [
        node.op_type for node in tx.fuse(single, ["com.microsoft::QLinearAdd", "com.microsoft::QLinearMul"]).nodes
    ] == ["QLinearAdd", "QLinearMul"]


def test_groups_that_the_op_cannot_express_are_not_fused():
    graph = group(lambda x: ops.average_pool(x, kernel_shape=[2, 2], dilations=[2, 2]), 1, 21)
    assert len(tx.fuse(graph, ["com.microsoft::QLinearAveragePool"]).nodes) == len(graph.nodes)
