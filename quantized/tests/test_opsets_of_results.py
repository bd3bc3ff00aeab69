"""Opsets of quantized models by the opset of the original, with equal results in onnxruntime."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import pytest

import tenonnx as tx
import tenonnx_standard as ops

FEEDS = {"x": np.random.default_rng(0).standard_normal((8, 2, 6, 6)).astype(np.float32)}

#: Settings, and the first opset that supports their types.
SETTINGS = {
    "int8": (13, {"mode": "static"}),
    "int8 per tensor": (13, {"mode": "static", "per_channel": False}),
    "int8 symmetric": (13, {"mode": "static", "symmetric": True}),
    "uint8 weights": (13, {"mode": "static", "weight_type": "uint8"}),
    "int8 gptq": (13, {"mode": "static", "method": "smooth-quant,gptq"}),
    "dynamic": (13, {"mode": "dynamic"}),
    "weights of 8 bits": (13, {"mode": "weights", "bits": 8, "granularity": "channel"}),
    "float8 weights": (19, {"mode": "weights", "weight_type": "float8e4m3fn"}),
    "float8e5m2 weights": (19, {"mode": "weights", "weight_type": "float8e5m2", "granularity": "tensor"}),
    "int16": (21, {"mode": "static", "activation_type": "uint16", "weight_type": "int8"}),
    "int4 and int8": (21, {"recipe": "int4-int8"}),
    "weights of 4 bits": (21, {"mode": "weights", "bits": 4, "granularity": "channel"}),
    "weights of 4 bits in blocks": (21, {"mode": "weights", "bits": 4}),
    "weights of 4 bits by gptq": (21, {"mode": "weights", "bits": 4, "method": "awq,gptq"}),
}


def model(opset):
    """A convolution, a pooling and two products."""
    random = np.random.default_rng(3)
    graph = tx.Graph(opsets={"ai.onnx": 21})
    kernels, first, second = (
        random.standard_normal(shape).astype(np.float32) / 4 for shape in ((4, 2, 3, 3), (36, 32), (32, 8))
    )
    bias = graph.variable("bias", random.standard_normal(4).astype(np.float32))
    x = ops.conv(graph.input("x", "float32", ("n", 2, 6, 6)), graph.variable("kernels", kernels), bias, pads=[1] * 4)
    x = ops.flatten(ops.max_pool(ops.relu(x), kernel_shape=[2, 2], strides=[2, 2]))
    hidden = ops.relu(x @ graph.variable("first", first))
    graph.output("y", ops.gemm(hidden, graph.variable("second", second), graph.variable("c", second[0])))
    return tx.retarget(graph, opset_version=opset)


@pytest.mark.parametrize("opset", [13, 19, 21])
@pytest.mark.parametrize("name", SETTINGS)
def test_the_file_is_right_in_onnxruntime(name, opset, tmp_path):
    first, settings = SETTINGS[name]
    made, report = tx.quantize(model(opset), [FEEDS], **settings)
    assert made.opsets["ai.onnx"] == max(first, opset)
    tx.export(made, path := tmp_path / "made.onnx")
    onnx.checker.check_model(path, full_check=True)
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    result = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"]).run(None, FEEDS)[0]
    expected = made.run(FEEDS, backend="numpy")["y"]
    # a sum may round to the next quantized value, one step of an 8-bit activation
    assert np.abs(result - expected).max() < 0.02 * np.abs(expected).max()
    assert report.outputs["y"] < 0.3
