"""Each quantized form at the oldest version of ai.onnx that supports it, as listed in the README."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest

import tenonnx as tx
import tenonnx_standard as ops
from tenonnx_quantized.convolution import qlinear_conv
from tenonnx_quantized.matrix import matmul_integer, qlinear_matmul
from tenonnx_quantized.quantize import dequantize_linear, dynamic_quantize_linear, quantize_linear

README = Path(__file__).parents[1] / "README.md"
RANDOM = np.random.default_rng(0)
F32, U8, I8 = np.float32, np.uint8, np.int8
X = RANDOM.normal(size=(4, 32)).astype(F32)
COLUMNS = 300  # smaller constants are folded
INT8 = RANDOM.integers(-127, 128, (32, COLUMNS)).astype(I8)
STEPS = RANDOM.uniform(0.01, 0.02, COLUMNS).astype(F32)


def constants(graph, **arrays):
    return [graph.variable(name, array) for name, array in arrays.items()]


def rounded(x, scale, zero_point):
    return dequantize_linear(quantize_linear(x, scale, zero_point), scale, zero_point)


def qoperator(graph, x):
    quantized = quantize_linear(x, F32(0.03), U8(128))
    kernel, product = constants(graph, k=RANDOM.integers(-9, 10, (3, 1, 1, 3)).astype(I8), w=INT8)
    image = ops.reshape(quantized, [4, 1, 1, 32])
    taken = F32(0.03), U8(128)
    image = qlinear_conv(image, *taken, kernel, F32(0.02), I8(0), *taken, pads=[0, 1, 0, 1])
    y = qlinear_matmul(ops.reshape(image, [12, 32]), *taken, product, F32(0.01), I8(0), F32(0.2), U8(128))
    return dequantize_linear(y, F32(0.2), U8(128))


def by_tensor(graph, x):
    return rounded(x, F32(0.03), U8(128)) @ dequantize_linear(*constants(graph, w=INT8), F32(0.01), I8(0))


def by_channel(graph, x):
    return rounded(x, F32(0.03), U8(128)) @ dequantize_linear(*constants(graph, w=INT8, s=STEPS), axis=1)


def dynamic(graph, x):
    quantized, scale, zero_point = dynamic_quantize_linear(x)
    return ops.cast(matmul_integer(quantized, *constants(graph, w=INT8), zero_point), to=tx.DType.float32) * scale


def by_half_floats(graph, x):
    quantized, scales = constants(graph, w=INT8, s=STEPS.astype(np.float16))
    return ops.cast(x, to=tx.DType.float16) @ dequantize_linear(quantized, scales, axis=1)


def float8(graph, x):
    quantized = RANDOM.normal(size=(32, COLUMNS)).astype(tx.DType.float8e4m3fn.numpy)
    return x @ dequantize_linear(*constants(graph, w=quantized), F32(0.1))


def int16(graph, x):
    return rounded(x, F32(0.001), np.int16(3))


def four_bits(graph, x):
    quantized = RANDOM.integers(-8, 8, (32, COLUMNS)).astype(tx.DType.int4.numpy)
    scales = RANDOM.uniform(0.01, 0.1, (2, COLUMNS)).astype(F32)
    return x @ dequantize_linear(*constants(graph, w=quantized, s=scales), axis=0, block_size=16)


FORMS = {
    "QLinearConv and QLinearMatMul": (qoperator, 10, {"QLinearConv", "QLinearMatMul"}),
    "QDQ per tensor": (by_tensor, 10, {"QuantizeLinear", "DequantizeLinear"}),
    "dynamic quantization, integer products": (dynamic, 11, {"DynamicQuantizeLinear", "MatMulInteger"}),
    "QDQ per channel": (by_channel, 13, {"QuantizeLinear", "DequantizeLinear"}),
    "float16 scales": (by_half_floats, 19, {"DequantizeLinear"}),
    "float8": (float8, 19, {"DequantizeLinear"}),
    "16-bit integers": (int16, 21, {"QuantizeLinear", "DequantizeLinear"}),
    "block-quantized weights, 4-bit": (four_bits, 21, {"DequantizeLinear"}),
}


def kept(graph, version, kinds):
    """Return the graph at an opset, and whether it has the same number of each of the form's ops."""

    def count(g):
        return {kind: sum(node.op_type == kind for node in g.nodes) for kind in kinds}

    moved = tx.retarget(graph, version, domains=["ai.onnx"])
    return moved, count(moved) == count(graph)


@pytest.mark.parametrize("name", FORMS)
def test_a_form_at_its_oldest_version(name, tmp_path):
    build, oldest, kinds = FORMS[name]
    graph = tx.Graph(opsets={"ai.onnx": 21})
    graph.output("y", build(graph, graph.input("x", "float32", X.shape)))
    moved, whole = kept(graph, oldest, kinds)
    assert whole, f"{name} can be said at {oldest}"
    tx.export(moved, tmp_path / "moved.onnx")
    onnx.checker.check_model(tmp_path / "moved.onnx", full_check=True)
    assert onnx.load(tmp_path / "moved.onnx").opset_import[0].version == oldest
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(tmp_path / "moved.onnx", options, providers=["CPUExecutionProvider"])
    expected = graph.run({"x": X}, backend="numpy")["y"]
    tolerance = 1e-2 if expected.dtype == np.float16 else 1e-5
    np.testing.assert_allclose(session.run(None, {"x": X})[0], expected, rtol=tolerance, atol=tolerance)
    try:
        older, whole = kept(graph, oldest - 1, kinds)
    except tx.NotRepresentable:
        return  # older opsets lack its element types, too
    assert not whole, f"{name} can be said below {oldest}"
    np.testing.assert_allclose(older.run({"x": X}, backend="numpy")["y"], expected, rtol=tolerance, atol=tolerance)


def test_the_readme_has_the_versions():
    rows = dict(re.findall(r"^\| ([^|]+) \| (\d+) \|$", README.read_text(encoding="utf-8"), re.MULTILINE))
    assert rows == {name: str(oldest) for name, (_, oldest, _) in FORMS.items()}
