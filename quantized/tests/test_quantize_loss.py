"""Quantization that would destroy a bias or an output, and weights that stay in floating point."""

from __future__ import annotations

import json
from functools import partial

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import numpy_helper

import tenonnx as tx
from tenonnx_cli import main
from tenonnx_quantized.tuning.quantize import quantize as quantize_graph

#: Static quantization, the default of these tests.
quantize = partial(quantize_graph, mode="static")

BIAS = np.array([-138.0, 3.0, 49.0, 44.0], np.float32)
NODES = {
    "Conv": ("float[n, 8, 6, 6] x", "y = Conv (x, w, b)", (4, 8, 3, 3), 0),
    "Gemm": ("float[n, 8] x", "y = Gemm (x, w, b)", (8, 4), 1),
    "Gemm of a transposed weight": ("float[n, 8] x", "y = Gemm <transB = 1> (x, w, b)", (4, 8), 0),
}


def model_of(inputs, nodes, more="", **weights):
    made = onnx.parser.parse_model(
        f'<ir_version: 8, opset_import: ["": 17, "local": 1]> g ({inputs}) => (float[k, l] y) {{ {nodes} }} {more}'
    )
    made.graph.output[0].type.tensor_type.ClearField("shape")
    made.graph.initializer.extend(numpy_helper.from_array(w, name) for name, w in weights.items())
    return made


@pytest.mark.parametrize("settings", [{}, {"per_channel": False}, {"weight_type": "uint8"}, {"form": "qoperator"}])
@pytest.mark.parametrize("name", NODES)
def test_a_bias_beyond_int32_steps_is_kept(name, settings):
    inputs, nodes, shape, axis = NODES[name]
    random = np.random.default_rng(0)
    w = random.standard_normal(shape).astype(np.float32)
    w[(slice(None),) * axis + (2,)] *= 1e-9  # a nearly dead channel
    if settings.get("per_channel") is False:
        w *= 1e-9
    model = model_of(inputs, nodes, w=w, b=BIAS)
    sizes = [4, *(d.dim_value for d in model.graph.input[0].type.tensor_type.shape.dim[1:])]
    feeds = {"x": random.standard_normal(sizes).astype(np.float32)}
    made, report = quantize(tx.load(model), [feeds], **settings)
    expected, result = (
        onnxruntime.InferenceSession(m.SerializeToString()).run(None, feeds)[0] for m in (model, made.to_proto())
    )
    assert np.abs(expected - result).max() < 1.0
    assert report.sqnr["y"] > 35


def test_a_bias_of_a_file_beyond_int32_stays_float():
    """In a third-party QDQ model, the bias would exceed int32 in QLinearConv."""
    model = model_of(
        "float[1, 1, 2, 2] x",
        """one = Constant <value_float = 1.0> ()  tiny = Constant <value_float = 1e-12> ()
        z = Constant <value = int8 {0}> ()  w = Constant <value = int8[1, 1, 1, 1] {1}> ()
        b = Constant <value = float[1] {50.0}> ()
        q = QuantizeLinear (x, one, z)  d = DequantizeLinear (q, one, z)  v = DequantizeLinear (w, tiny, z)
        c = Conv (d, v, b)  e = QuantizeLinear (c, one, z)  y = DequantizeLinear (e, one, z)""",
    )
    made = tx.load(model)
    from tenonnx_quantized.forms.qoperator import to_qoperator

    result = to_qoperator(made).run({"x": np.ones((1, 1, 2, 2), np.float32)}, backend="numpy")["y"]
    np.testing.assert_array_equal(result, np.full((1, 1, 2, 2), 50.0))


def test_an_output_below_ten_decibels_is_rejected(tmp_path, capsys):
    """With one scale per tensor, outliers of a weight leave no precision for the other elements."""
    random = np.random.default_rng(0)
    w = random.standard_normal((16, 16)).astype(np.float32)
    w[0] *= 1e4
    x = random.standard_normal((8, 16)).astype(np.float32)
    x[:, 0] = 0
    onnx.save(model_of("float[n, 16] x", "y = MatMul (x, w)", w=w), tmp_path / "m.onnx")
    np.savez(tmp_path / "x.npz", x=x)
    given = ["quantize", str(tmp_path / "m.onnx"), "-o", str(tmp_path / "q.onnx"), "--inputs", str(tmp_path / "x.npz")]
    given += ["--per-tensor"]
    assert main(given) == 1
    assert "signal-to-quantization-noise ratio" in capsys.readouterr().err
    assert not (tmp_path / "q.onnx").exists()
    assert main([*given, "--allow-loss", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["sqnr"]["y"] < 10


W = np.random.default_rng(1).standard_normal((32, 32)).astype(np.float32)
#: Nodes between a weight and its MatMul.
SEEN = {
    "Identity": "v = Identity (w) y = MatMul (x, v)",
    "Transpose": "v = Transpose (w) y = MatMul (x, v)",
    "Reshape": "s = Constant <value_ints = [32, 32]> () v = Reshape (w, s) y = MatMul (x, v)",
    "Cast": "v = Cast <to = 1> (w) y = MatMul (x, v)",
    "Identity of Transpose": "u = Transpose (w) v = Identity (u) y = MatMul (x, v)",
}


@pytest.mark.parametrize("name", SEEN)
@pytest.mark.parametrize("mode", ["weights", "dynamic"])
def test_weights_behind_nodes_are_quantized(name, mode):
    w = W.astype(np.float16) if name == "Cast" else W
    _, report = quantize(tx.load(model_of("float[n, 32] x", SEEN[name], w=w)), mode=mode)
    assert report.reached == 1.0
    assert not report.unquantized
    assert report.outputs["y"] < 0.2


def test_a_weight_in_a_constant_node_is_quantized():
    model = model_of("float[n, 32] x", "y = MatMul (x, w)")
    constant = onnx.helper.make_node("Constant", [], ["w"], value=numpy_helper.from_array(W))
    model.graph.node.insert(0, constant)
    _, report = quantize(tx.load(model), mode="weights")
    assert (report.reached, report.quantized and report.unquantized) == (1.0, {})


LEFT = {
    "a body": (
        "float[n, 32] x, bool c",
        """a = MatMul (x, w) y = If (c) <then_branch = t () => (t)
        { t = MatMul (a, v) }, else_branch = e () => (e) { e = Neg (a) }>""",
        "",
    ),
    "a function": (
        "float[n, 32] x",
        "a = MatMul (x, w) y = local.F (a)",
        """
        <domain: "local", opset_import: ["": 17]> F (a) => (r)
        { v = Constant <value = float[1, 1] {1.0}> () r = MatMul (a, v) }""",
    ),
}


def test_weights_of_a_body_that_stay_are_counted():
    model = model_of(*LEFT["a body"], w=W, v=W)
    _, report = quantize(tx.load(model), mode="weights")
    assert report.reached == 0.5
    assert report.unquantized == {"v": "MatMul"}


def test_weights_of_a_function_that_stay_are_counted():
    model = model_of(*LEFT["a function"], w=W)
    model.functions[0].node[0].attribute[0].t.CopyFrom(numpy_helper.from_array(W))
    _, report = quantize(tx.load(model), mode="weights")
    assert report.reached == 0.5
    assert list(report.unquantized.values()) == ["MatMul"]
