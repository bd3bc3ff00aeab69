"""Blockwise float4 and float8 weights: MX formats, NVFP4 and float32 scales."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx.reference import ReferenceEvaluator

import tenonnx as tx
import tenonnx_standard as ops
from tenonnx.extend import DType
from tenonnx_quantized.tuning.methods.layer import grid
from tenonnx_quantized.tuning.quantized_tensor import round_units

FEEDS = {"x": np.random.default_rng(1).standard_normal((80, 64)).astype(np.float32)}


def perceptron():
    random = np.random.default_rng(3)
    graph = tx.Graph(opsets={"ai.onnx": 21})
    first, second = (random.standard_normal(shape).astype(np.float32) / 6 for shape in ((64, 48), (48, 16)))
    hidden = ops.relu(graph.input("x", "float32", ("n", 64)) @ graph.variable("first", first))
    graph.output("y", hidden @ graph.variable("second", second))
    return graph


FORMATS = {
    "mxfp4": (24, "FLOAT4E2M1", "FLOAT8E8M0"),
    "mxfp8": (24, "FLOAT8E4M3FN", "FLOAT8E8M0"),
    "nvfp4": (23, "FLOAT4E2M1", "FLOAT8E4M3FN"),
}


@pytest.mark.parametrize("method", ["rtn", "gptq", "quantease", "awq,gptq"])
@pytest.mark.parametrize("recipe", FORMATS)
def test_the_file_has_the_types_of_the_format_and_the_reference_agrees(recipe, method, tmp_path):
    version, dtype, scale_type = FORMATS[recipe]
    made, _ = tx.quantize(perceptron(), [FEEDS], recipe=recipe, method=method)
    assert made.opsets["ai.onnx"] == version
    tx.export(made, path := tmp_path / "made.onnx")
    onnx.checker.check_model(path, full_check=True)
    kinds = {each.name: onnx.TensorProto.DataType.Name(each.data_type) for each in onnx.load(path).graph.initializer}
    assert kinds["first/quantized"] == dtype
    assert kinds["first/scale"] == scale_type
    result = ReferenceEvaluator(str(path)).run(None, FEEDS)[0]
    np.testing.assert_allclose(result, made.run(FEEDS, backend="numpy")["y"], rtol=1e-4, atol=1e-5)


def error(**settings):
    _, report = tx.quantize(perceptron(), [FEEDS], mode="weights", **settings)
    return report.outputs["y"]


def test_errors_of_the_formats_have_the_expected_order():
    nearest = {name: error(recipe=name) for name in FORMATS}
    assert nearest["mxfp8"] < nearest["nvfp4"] < nearest["mxfp4"] < 0.25
    for name in FORMATS:
        assert error(recipe=name, method="gptq") < nearest[name]


def test_power_of_two_scales_are_the_better_of_the_two_nearest():
    weights = np.random.default_rng(0).standard_normal((64, 8)).astype(np.float32)
    result = grid(weights, DType.float4e2m1, 32, symmetric=True, scale_type=DType.float8e8m0)
    assert (np.log2(result.scale) % 1 == 0).all()

    def lost(scale):
        units = weights.reshape(2, 32, 8) / scale[:, None]
        off = (round_units(units, 0.0, DType.float4e2m1) - units) * scale[:, None]
        return np.square(off).sum(1)

    assert (lost(result.scale) <= lost(result.scale / 2)).all()
    assert (lost(result.scale) <= lost(result.scale * 2)).all()


@pytest.mark.parametrize("recipe", FORMATS)
def test_weights_of_zeros_and_of_tiny_numbers(recipe):
    graph = tx.Graph(opsets={"ai.onnx": 21})
    weights = np.zeros((64, 16), np.float32)
    weights[:, 1], weights[:3, 2] = 1e-30, 1.0
    graph.output("y", graph.input("x", "float32", ("n", 64)) @ graph.variable("w", weights))
    made, _ = tx.quantize(graph, [FEEDS], recipe=recipe)
    y = made.run(FEEDS, backend="numpy")["y"]
    np.testing.assert_allclose(y[:, 2], FEEDS["x"][:, :3].sum(1), rtol=0.1, atol=1e-5)
    assert not y[:, [0, *range(3, 16)]].any()


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"mode": "weights", "weight_type": "float4e2m1", "method": "auto-round"}, "does not round to floats"),
        ({"mode": "weights", "scale_type": "float8e8m0"}, "unsupported scale_type"),
        ({"mode": "static", "weight_type": "float4e2m1"}, "unsupported weight_type"),
        ({"recipe": "mxfp4", "scale_type": "float16"}, "unsupported scale_type"),
        ({"recipe": "mxfp4", "granularity": "channel"}, "unsupported scale_type"),
    ],
)
def test_conflicting_settings_are_rejected(settings, words):
    with pytest.raises(tx.errors.InvalidCall, match=words):
        tx.quantize(perceptron(), [FEEDS], **settings)


def test_sensitivity_of_float_formats_uses_their_dtype():
    _, report = tx.quantize(perceptron(), [FEEDS], recipe="mxfp4", report=True)
    assert [set(layer.errors) for layer in report.layers] == [{4}, {4}]
    assert report.pareto[0].bits == pytest.approx(4.25, abs=0.1)  # 4 bits, and a one-byte scale per 32 weights
