"""Weight-only quantization of convolutions."""

import numpy as np
import pytest

import tenonnx as tx
import tenonnx_standard as ops
from tenonnx_quantized.tuning.quantize import quantize


def test_weights_of_convolutions_are_quantized_per_channel():
    draw = np.random.default_rng(0).standard_normal
    graph = tx.Graph(opsets={"ai.onnx": 17})
    x = graph.input("x", "float32", (2, 8, 9, 9))
    kernel = graph.variable("kernel", draw((16, 8, 3, 3)).astype(np.float32))
    head = graph.variable("head", draw((16, 32)).astype(np.float32))
    graph.output("y", ops.matmul(ops.reduce_mean(ops.conv(x, kernel), [2, 3], keepdims=0), head))
    made, report = quantize(graph, [{"x": draw((2, 8, 9, 9)).astype(np.float32)}], mode="weights", bits=8)
    assert {tensor.name: tensor.dtype for tensor in report.tensors} == {"kernel": "int8", "head": "uint8"}
    assert len(report.quantized) == 2
    assert [node.op_type for node in made.nodes].count("DequantizeLinear") == 2
    assert report.outputs["y"] < 0.01


def test_layers_with_few_outputs_have_eight_bits_by_default():
    draw = np.random.default_rng(0).standard_normal
    graph = tx.Graph(opsets={"ai.onnx": 17})
    x = graph.input("x", "float32", (2, 8, 9, 9))
    kernel = graph.variable("kernel", draw((16, 8, 3, 3)).astype(np.float32))
    head = graph.variable("head", draw((10, 16)).astype(np.float32))
    graph.output("y", ops.gemm(ops.reduce_mean(ops.conv(x, kernel), [2, 3], keepdims=0), head, transB=1))
    batches = [{"x": draw((2, 8, 9, 9)).astype(np.float32)}]
    made, report = quantize(graph, batches, mode="weights")
    assert {tensor.name: tensor.dtype for tensor in report.tensors} == {"kernel": "int8", "head": "int8"}
    assert report.outputs["y"] < 0.01
    assert made.opsets["ai.onnx"] == 17  # only blockwise scales need opset 21
    assert tx.verify(made, tx.retarget(made, opset_version=13), feeds=batches[0])
    made, report = quantize(graph, batches, mode="weights", bits=4)
    assert {tensor.name: tensor.dtype for tensor in report.tensors} == {"kernel": "int8", "head": "uint4"}
    assert made.opsets["ai.onnx"] == 21


def test_the_report_lists_quantized_and_remaining_weights():
    graph = tx.Graph(opsets={"ai.onnx": 21})
    rows = np.random.default_rng(0).normal(size=(96, 32)).astype(np.float32)
    table, matrix = graph.variable("table", rows), graph.variable("matrix", rows[:32])
    graph.output("y", ops.matmul(ops.gather(table, graph.input("x", "int64", ("n",))), matrix))
    _, report = quantize(graph, mode="weights")
    assert report.reached == pytest.approx(0.25)
    assert report.unquantized == {"table": "Gather"}
    assert report.to_dict()["unquantized"] == {"table": "Gather"}
