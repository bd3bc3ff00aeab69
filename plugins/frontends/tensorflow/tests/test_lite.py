"""Quantized LiteRT models: integers are kept, channels first."""

from __future__ import annotations

import io
import sys
from pathlib import Path

import numpy as np
import onnxruntime
import pytest

sys.path.insert(0, str(Path(__file__).parent))

from cases.lite import _FUNCTIONS, _X, CASES, converted
from cases.lite_recurrent import bidirectional_lstm, lstm

import tenonnx as tx
from tenonnx import DType
from tenonnx_litert.reading.verification import Interpreter


@pytest.mark.parametrize(("name", "count"), [("network_int8", 4), ("network_int16", 4), ("perceptron_dynamic", 2)])
def test_weights_are_quantized_values(name: str, count: int) -> None:
    """With dynamic range quantization, TensorFlow keeps small weights in float."""
    graph = tx.load(CASES[name].make(), verify=False)
    makers = [n.inputs[1].producer for n in graph.nodes if n.op_type in ("Conv", "MatMul", "Gemm")]
    quantized = [made.inputs[0] for made in makers if made is not None and made.op_type == "DequantizeLinear"]
    assert len(quantized) == count
    assert all(value.is_constant and str(value.dtype) == "int8" for value in quantized)


@pytest.mark.parametrize("name", ["network_int8", "network_int16"])
def test_quantized_values_lie_channels_first(name: str) -> None:
    graph = tx.load(CASES[name].make(), verify=False)
    assert [n.op_type for n in graph.nodes].count("Transpose") == 1  # the one of images


def test_weights_by_channel_are_not_quantized_again() -> None:
    """onnxruntime would quantize float weights between QDQ nodes with one scale."""
    graph = tx.load(CASES["dense_int16"].make())
    x = np.random.default_rng(0).normal(size=(2, 6, 6, 4)).astype(np.float32)
    result = [graph.run({graph.inputs[0].name: x}, backend=name) for name in ("numpy", "onnxruntime")]
    step = max(float(n.inputs[1].data.array().max()) for n in graph.nodes if n.op_type == "QuantizeLinear")
    for one, other in zip(*(each.values() for each in result), strict=True):
        np.testing.assert_allclose(one, other, atol=1.01 * step)


def test_both_directions_side_by_side() -> None:
    """The interpreter's results vary between calls if a layer merges its directions."""
    graphs = [tx.load(bidirectional_lstm("float", merged=merged), verify=False) for merged in (True, False)]
    x = np.random.default_rng(0).normal(size=(2, 5, 6)).astype(np.float32)
    joined, apart = ([*g.run({g.inputs[0].name: x}).values()] for g in graphs)
    np.testing.assert_array_equal(joined[0], np.concatenate(apart[:2], axis=2))


def test_weights_of_hybrid_recurrent_layers_are_quantized_values() -> None:
    graph = tx.load(lstm("hybrid"), verify=False)
    quantized = [
        node.inputs[0] for node in graph.nodes if node.op_type == "DequantizeLinear" and node.inputs[0].is_constant
    ]
    assert (
        sum(str(value.dtype) == "int8" and value.ndim == 2 for value in quantized if value not in graph.all_inputs) == 8
    )


def test_recurrent_layers_of_integers_compute_no_rounded_floats() -> None:
    """Sums and tables are integers, held in float64."""
    nodes = list(tx.load(lstm("int8"), verify=False).walk())
    assert not any(node.op_type in ("DequantizeLinear", "Sigmoid", "Tanh", "LSTM") for node in nodes)
    gates = [node for node in nodes if node.op_type in ("MatMul", "Gemm")]
    assert len(gates) == 8
    assert all(node.outputs[0].dtype == DType.float64 for node in gates)


def test_states_of_quantized_values_begin_at_zero() -> None:
    """Zero, not the quantized value 0, which represents another number."""
    graph = tx.load(lstm("int8"), verify=False)
    defaults = {v.name: v.data.array() for v in graph.all_inputs if v not in graph.inputs and v.data is not None}
    assert sorted(int(array.max()) for array in defaults.values()) == [0, 5]
    assert all(array.min() == array.max() for array in defaults.values())


@pytest.mark.parametrize(
    ("given", "said"), [({"name": "LSTM", "kernel": 1}, "BASIC"), ({"diagonal": True}, "matrices")]
)
def test_refused_recurrent_layers(given: dict[str, object], said: str) -> None:
    with pytest.raises(tx.NotRepresentable, match=said):
        tx.load(lstm("float", **given), verify=False)


@pytest.mark.parametrize("opset", [13, 17, 21])
@pytest.mark.parametrize("name", ["conv", "depthwise", "transpose_conv", "avg_pool", "dense", "batch_matmul"])
def test_quantized_values_are_loaded_unchanged(name: str, opset: int) -> None:
    """onnxruntime moves Transpose past quantization itself, and from opset 21 on cannot load the result."""
    path = converted(_FUNCTIONS[name], [_X], "int8")
    stream = io.BytesIO()
    tx.export(tx.load(path), stream, opset_version=opset)
    session = onnxruntime.InferenceSession(stream.getvalue(), providers=["CPUExecutionProvider"])
    x = np.random.default_rng(0).integers(-128, 128, _X).astype(np.int8)
    (result,) = session.run(None, {session.get_inputs()[0].name: x})
    (expected,) = Interpreter(path)([x])
    assert np.abs(result.astype(int) - expected.astype(int)).max() <= 1
