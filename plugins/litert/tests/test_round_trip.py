"""Round trips of quantized files."""

import numpy as np
import pytest
from test_quantized import KERNELS, OF_4_BITS, File, quantized_graph, weights, write

import tenonnx as tx
import tenonnx_standard as ops


def tensors(file):
    """Operators, with types, scales and zero points of their results and constants."""
    result = []
    for name, inputs, outputs in file.operators:
        described = []
        for place in (*inputs, *outputs):
            tensor = file.graph.Tensors(place)
            scales = tensor.Quantization()
            numbers = [] if scales is None or not scales.ScaleLength() else scales.ScaleAsNumpy().tolist()
            points = [] if not numbers else scales.ZeroPointAsNumpy().tolist()
            described.append((tensor.Type(), np.float32(numbers).tolist(), points))
        result.append((name, described))
    return sorted(result, key=str)


def twice(graph, tmp_path):
    first = write(graph, tmp_path)
    read = tx.load(first, verify=False)
    (tmp_path / "again").mkdir()
    return File(first), File(write(read, tmp_path / "again"))


@pytest.mark.parametrize("name", KERNELS)
def test_a_file_of_int8_becomes_the_same_file(name, tmp_path):
    array, function, _ = KERNELS[name]
    first, second = twice(quantized_graph(array, function), tmp_path)
    assert sorted(first.names()) == sorted(second.names())
    assert tensors(first) == tensors(second)


@pytest.mark.parametrize("name", ["conv-bias", "depthwise", "matmul", "attention", "softmax", "concat", "mean"])
def test_a_file_of_int16_becomes_the_same_file(name, tmp_path):
    array, function, _ = KERNELS[name]
    first, second = twice(quantized_graph(array, function, "int16"), tmp_path)
    assert tensors(first) == tensors(second)


def test_dequantized_weights_stay_those_of_a_product(tmp_path):
    graph = tx.Graph(opsets={"ai.onnx": 21})
    x = graph.input("x", "float32", ("n", 5, 64))
    with graph.building():
        graph.output("y", ops.matmul(x, weights(64, 96, axis=1)))
    first, second = twice(graph, tmp_path)
    assert first.names() == second.names() == ["DEQUANTIZE", "FULLY_CONNECTED"]


@pytest.mark.parametrize("name", OF_4_BITS)
def test_a_file_of_int4_becomes_the_same_file(name, tmp_path):
    array, function, _ = OF_4_BITS[name]
    first, second = twice(quantized_graph(array, function), tmp_path)
    assert tensors(first) == tensors(second)
