"""Round trips from LiteRT files to graphs and back."""

import numpy as np
import pytest
from litert_graphs import graph_of

import tenonnx as tx
import tenonnx_standard as ops
from tenonnx.errors import InvalidModel
from tenonnx.extend import DType, TensorType, constant, subgraph
from tenonnx_litert.reading.reader import read_file
from tenonnx_quantized.quantize import dequantize_linear, quantize_linear

RNG = np.random.default_rng(0)
IMAGE = RNG.standard_normal((2, 4, 8, 8)).astype(np.float32)


def weights(*shape):
    return constant(np.random.default_rng(1).standard_normal(shape).astype(np.float32))


def convolutions(x):
    y = ops.relu(ops.conv(x, weights(6, 4, 3, 3), weights(6), strides=[2, 2], pads=[1] * 4))
    y = ops.clip(ops.conv(y, weights(6, 1, 3, 3), weights(6), group=6, pads=[1] * 4), 0.0, 6.0)
    y = ops.max_pool(y, kernel_shape=[2, 2], strides=[2, 2])
    return ops.softmax(ops.gemm(ops.flatten(ops.reduce_mean(y, [2, 3])), weights(6, 5), weights(5)))


def quantized(x):
    scale, zero = constant(np.float32(0.02)), constant(np.int8(3))
    x = dequantize_linear(quantize_linear(x, scale, zero), scale, zero)
    kernel = constant(RNG.integers(-127, 128, (6, 4, 3, 3)).astype(np.int8))
    y = ops.relu(ops.conv(x, dequantize_linear(kernel, constant(np.float32(0.01)), constant(np.int8(0))), pads=[1] * 4))
    y = dequantize_linear(quantize_linear(y, scale, zero), scale, zero)
    return ops.max_pool(y, kernel_shape=[2, 2], strides=[2, 2])


def recurrent(x):
    kinds = [("step", TensorType(DType.int64, ())), ("going_on", TensorType(DType.bool, ())), ("total", x.type)]
    body = subgraph(lambda step, going_on, total: (going_on, ops.tanh(total + x)), kinds)
    return ops.loop(ops.gather(ops.shape(x), 0), None, x, body=body, _outputs=1)


def contents(path):
    parts = read_file(path).subgraphs
    tensors = [tensor for part in parts for tensor in part.tensors if tensor.quantization is not None]
    constants = [(t.contents.tobytes(), t.quantization.scales.tobytes()) for t in tensors if t.contents is not None]
    return [operator.name for part in parts for operator in part.operators], sorted(constants)


@pytest.mark.parametrize("network", [convolutions, quantized])
def test_a_round_trip_gives_the_same_operators_and_quantized_values(network, tmp_path):
    first, second = tmp_path / "first.tflite", tmp_path / "second.tflite"
    tx.convert(graph_of(network, IMAGE, dims={0: "batch"}), first)
    tx.convert(first, second)
    assert contents(first) == contents(second)
    assert contents(first)[0]


def test_loops_are_read_and_written_again(tmp_path):
    first, second = tmp_path / "first.tflite", tmp_path / "second.tflite"
    graph = graph_of(recurrent, IMAGE[0, 0], dims={0: "rows"})
    tx.convert(graph, first)
    tx.convert(first, second)
    assert "WHILE" in contents(second)[0]
    feeds = {"x0": IMAGE[0, 0]}
    expected = graph.run(feeds, backend="numpy")["y0"]
    np.testing.assert_allclose(tx.load(second).run(feeds, backend="numpy")["y0"], expected, rtol=1e-5)


@pytest.mark.parametrize("damage", [lambda raw: raw[:100], lambda raw: b"no model", lambda raw: raw[:4] + b"XXXX"])
def test_a_broken_file_is_refused(damage, tmp_path):
    path = tmp_path / "m.tflite"
    tx.convert(graph_of(ops.relu, IMAGE), path)
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(InvalidModel):
        tx.load(path)
