"""Quantized models in OpenVINO, at the opsets of their models."""

from __future__ import annotations

import numpy as np
import openvino
import pytest

import tenonnx as tx
import tenonnx_standard as ops

FEEDS = {"x": np.random.default_rng(0).standard_normal((8, 2, 8, 8)).astype(np.float32)}

#: Settings, and the first opset that supports their types.
SETTINGS = {
    "recipe": (13, {"recipe": "openvino"}),
    "int8 per tensor": (13, {"mode": "static", "per_channel": False}),
    "int8 symmetric": (13, {"mode": "static", "symmetric": True}),
    "int8 gptq": (13, {"mode": "static", "method": "smooth-quant,gptq"}),
    "weights of 8 bits": (13, {"mode": "weights", "bits": 8, "granularity": "channel"}),
    "float8 weights": (19, {"mode": "weights", "weight_type": "float8e4m3fn"}),
    "int16": (21, {"mode": "static", "activation_type": "uint16", "weight_type": "int8"}),
    "int4 and int8": (21, {"recipe": "int4-int8"}),
    "weights of 4 bits": (21, {"mode": "weights", "bits": 4, "granularity": "channel"}),
    "weights of 4 bits in blocks": (21, {"mode": "weights", "bits": 4, "method": "awq,gptq"}),
}


def model(opset):
    """A convolution, a pooling and two products."""
    random = np.random.default_rng(3)
    graph = tx.Graph(opsets={"ai.onnx": 21})
    shapes = ((4, 2, 3, 3), (64, 32), (32, 8))
    kernels, first, second = (random.standard_normal(shape).astype(np.float32) / 4 for shape in shapes)
    bias = graph.variable("bias", random.standard_normal(4).astype(np.float32))
    x = ops.conv(graph.input("x", "float32", ("n", 2, 8, 8)), graph.variable("kernels", kernels), bias, pads=[1] * 4)
    x = ops.flatten(ops.max_pool(ops.relu(x), kernel_shape=[2, 2], strides=[2, 2]))
    hidden = ops.relu(x @ graph.variable("first", first))
    graph.output("y", ops.gemm(hidden, graph.variable("second", second), graph.variable("c", second[0])))
    return tx.retarget(graph, opset_version=opset)


@pytest.mark.parametrize("opset", [13, 19, 21])
@pytest.mark.parametrize("name", SETTINGS)
def test_openvino_reads_the_file_and_computes_the_same(name, opset, tmp_path):
    first, settings = SETTINGS[name]
    made, _ = tx.quantize(model(opset), [FEEDS], **settings)
    assert made.opsets["ai.onnx"] == max(first, opset)
    tx.export(made, path := tmp_path / "made.onnx")
    core = openvino.Core()
    compiled = core.compile_model(core.read_model(path), "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
    result = next(iter(compiled(FEEDS).values()))
    expected = made.run(FEEDS, backend="numpy")["y"]
    # OpenVINO sums integers; a sum may round to the next quantized value
    assert np.abs(result - expected).max() < 0.05 * np.abs(expected).max()
