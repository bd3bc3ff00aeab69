"""Dynamic quantization by hybrid kernels: float activations with int8 weights."""

from pathlib import Path

import numpy as np
import pytest
import tflite
from test_quantized import IMAGE, ROWS, File, run, weights, write

import tenonnx as tx
import tenonnx_standard as ops
from tenonnx.extend import constant
from tenonnx_litert.format import unrounded
from tenonnx_quantized import quantize as quantized

EXAMPLES = Path(__file__).parents[3] / "examples"


def rounded(x):
    return quantized.dequantize_linear(*quantized.dynamic_quantize_linear(x))


def with_zero_points(x):
    contents = constant(np.arange(24, dtype=np.uint8).reshape(4, 6))
    return ops.matmul(rounded(x), quantized.dequantize_linear(contents, np.float32(0.01), constant(np.uint8(9))))


PRODUCTS = {
    "matmul": (
        ROWS,
        lambda x: ops.relu(ops.matmul(rounded(x), weights(4, 6, axis=1)) + constant(np.ones(6, np.float32))),
    ),
    "one scale": (ROWS, lambda x: ops.matmul(rounded(x), weights(4, 6))),
    "gemm": (
        ROWS[0],
        lambda x: ops.gemm(rounded(x), weights(6, 4, axis=0), constant(np.ones(6, np.float32)), transB=1),
    ),
    "conv": (IMAGE, lambda x: ops.conv(rounded(x), weights(4, 6, 3, 3, axis=0), pads=[1] * 4)),
    "depthwise": (IMAGE, lambda x: ops.conv(rounded(x), weights(12, 1, 3, 3, axis=0), group=6)),
    "conv of rows": (ROWS, lambda x: ops.conv(rounded(x), weights(4, 5, 3, axis=0), pads=[1, 1])),
}


def graph_of(array, function):
    graph = tx.Graph("g", opsets={"ai.onnx": 21})
    x = graph.input("x", "float32", array.shape)
    with graph.building():
        graph.output("y", function(x))
    return graph


@pytest.mark.parametrize("name", PRODUCTS)
def test_a_product_of_dynamically_quantized_values_has_a_hybrid_kernel(name, tmp_path):
    array, function = PRODUCTS[name]
    graph = graph_of(array, function)
    path = write(graph, tmp_path)
    file = File(path)
    (kinds,) = [
        [file.graph.Tensors(k).Type() for k in inputs[:2]]
        for op, inputs, _ in file.operators
        if op in ("FULLY_CONNECTED", "CONV_2D", "DEPTHWISE_CONV_2D")
    ]
    assert kinds == [tflite.TensorType.FLOAT32, tflite.TensorType.INT8]
    assert {"DEQUANTIZE", "ROUND", "REDUCE_MAX"}.isdisjoint(file.names())
    expected = graph.run({"x": array}, backend="numpy")["y"]
    for reference in (False, True):
        result = run(path, {"x": array}, reference=reference)["y"]
        assert np.abs(result - expected).max() <= 0.02 * np.abs(expected).max()


def test_weights_with_zero_points_compute_the_same_as_the_model(tmp_path):
    graph = graph_of(ROWS, with_zero_points)
    path = write(graph, tmp_path)
    expected = graph.run({"x": ROWS}, backend="numpy")["y"]
    np.testing.assert_allclose(run(path, {"x": ROWS})["y"], expected, rtol=1e-4, atol=1e-5)
    assert "ROUND" in File(path).names()


def test_weights_with_a_scale_for_each_input_are_dequantized(tmp_path):
    graph = graph_of(ROWS, lambda x: ops.matmul(rounded(x), weights(4, 6, axis=0)))
    path = write(graph, tmp_path)
    expected = graph.run({"x": ROWS}, backend="numpy")["y"]
    result = run(path, {"x": ROWS})["y"]
    assert np.abs(result - expected).max() <= 0.02 * np.abs(expected).max()


def test_an_output_is_rounded(tmp_path):
    graph = tx.Graph("g", opsets={"ai.onnx": 21})
    x = graph.input("x", "float32", ROWS.shape)
    with graph.building():
        graph.output("rows", rounded(x))
        graph.output("y", ops.matmul(graph.outputs[0], weights(4, 6)))
    path = write(graph, tmp_path)
    expected = graph.run({"x": ROWS}, backend="numpy")
    result = run(path, {"x": ROWS})
    for name, array in expected.items():
        np.testing.assert_allclose(result[name], array, rtol=1e-4, atol=1e-4)
    assert not np.array_equal(result["rows"], ROWS)


def test_products_of_integers_have_hybrid_kernels(tmp_path):
    source = EXAMPLES / "quantized/bert-dynamic.onnx"
    report = tx.convert(source, tmp_path / "m.tflite")
    assert report.verification.equal
    names = File(tmp_path / "m.tflite").names()
    assert "FULLY_CONNECTED" in names
    assert "ROUND" not in names
    assert (tmp_path / "m.tflite").stat().st_size < 1.5 * source.stat().st_size


def test_the_model_without_dynamic_rounding_equals_the_float_model():
    result = unrounded(graph_of(ROWS, PRODUCTS["one scale"][1]))
    expected = graph_of(ROWS, lambda x: ops.matmul(x, weights(4, 6))).run({"x": ROWS}, backend="numpy")
    np.testing.assert_allclose(result.run({"x": ROWS}, backend="numpy")["y"], expected["y"], rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("function", [ops.relu, with_zero_points])
def test_a_model_without_hybrid_kernels_keeps_all_roundings(function):
    assert unrounded(graph_of(ROWS, function)) is None
