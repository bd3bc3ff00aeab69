"""The quantized example models in every form, compared with onnxruntime and with their float models."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import onnxruntime
import pytest

import tenonnx as tx
from tenonnx.extend import ArrayConstant
from tenonnx_quantized.forms.dequantize import to_floats
from tenonnx_quantized.forms.qdq import to_qdq
from tenonnx_quantized.forms.qoperator import to_qoperator

EXAMPLES = Path(__file__).parents[2] / "examples"
FOLDER = EXAMPLES / "quantized"
MODELS = {
    "bert-dynamic": (FOLDER / "bert.npz", "bert", {"MatMulInteger", "DynamicQuantizeLinear"}),
    "bert-static": (FOLDER / "bert.npz", "bert", {"QuantizeLinear", "DequantizeLinear", "MatMul"}),
    "resnet-qdq": (FOLDER / "resnet.npz", "resnet", {"QuantizeLinear", "DequantizeLinear", "Conv"}),
    "resnet-qoperator": (FOLDER / "resnet.npz", "resnet", {"QLinearConv", "QLinearAdd", "QLinearGlobalAveragePool"}),
    "llama-4bit": (FOLDER / "llama.npz", "llama", {"MatMulNBits", "Attention", "RotaryEmbedding"}),
    "llama-4bit-qdq": (FOLDER / "llama.npz", "llama", {"DequantizeLinear", "MatMul"}),
}


@pytest.fixture(params=MODELS)
def example(request):
    samples, floats, kinds = MODELS[request.param]
    path = FOLDER / f"{request.param}.onnx"
    return path, dict(np.load(samples)), FOLDER / f"{floats}.onnx", kinds


def by_onnxruntime(path, feeds, *outputs):
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"]).run(outputs or None, feeds)[
        0
    ]


def relative(found, wanted):
    return float(np.sqrt(np.mean((found - wanted) ** 2) / np.mean(wanted**2)))


def test_an_example_gives_the_expected_results(example):
    path, feeds, floats, kinds = example
    graph = tx.load(path)
    assert kinds <= set(Counter(node.op_type for node in graph.walk()))
    name = graph.outputs[0].name
    expected = by_onnxruntime(path, feeds, name)
    assert relative(graph.run(feeds, backend="numpy")[name], expected) < 0.005
    # quantizing its 21,000 weights to 4 bits causes a relative error of 1/6 in the decoder's logits
    assert relative(expected, by_onnxruntime(floats, feeds, name)) < (0.2 if "4bit" in path.name else 0.06)
    assert path.stat().st_size < floats.stat().st_size


@pytest.mark.parametrize("form", [to_qdq, to_qoperator, to_floats])
def test_examples_convert_to_every_form(example, form, tmp_path):
    path, feeds, *_ = example
    graph = tx.load(path)
    made, name = form(graph), graph.outputs[0].name
    tx.export(made, tmp_path / "made.onnx")
    difference = relative(by_onnxruntime(tmp_path / "made.onnx", feeds, name), by_onnxruntime(path, feeds, name))
    assert difference < (0.06 if form is to_floats else 0.02)


def test_four_bit_weights_are_stored_in_four_bits():
    graph = tx.load(FOLDER / "llama-4bit.onnx")
    assert {node.attributes.get("bits", 4) for node in graph.nodes if node.op_type == "MatMulNBits"} == {4}
    quantized = [v for v in tx.load(FOLDER / "llama-4bit-qdq.onnx").variables if v.dtype is tx.DType.uint4]
    assert len(quantized) == 2 * 15, "weights and zero points of seven products in each layer, and of the head"


def test_the_decoder_predicts_as_before():
    """Compare perplexity on a text that the float model has memorized."""
    feeds = dict(np.load(FOLDER / "llama.npz"))
    letters, perplexity = feeds["input_ids"], {}
    for name in ("llama", "llama-4bit", "llama-4bit-qdq"):
        logits = by_onnxruntime(FOLDER / f"{name}.onnx", feeds, "logits")[:, :-1]
        logs = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
        perplexity[name] = np.exp(-np.take_along_axis(logs, letters[:, 1:, None], -1).mean())
    assert perplexity["llama"] < 1.5
    assert perplexity["llama-4bit"] == pytest.approx(perplexity["llama"], rel=0.05)
    assert perplexity["llama-4bit-qdq"] == pytest.approx(perplexity["llama-4bit"], rel=1e-4)


@pytest.mark.parametrize("dtype", ["uint4", "int4"])
def test_a_decoder_of_four_bits_in_qdq_keeps_its_precision(dtype):
    """onnxruntime fuses DequantizeLinear and MatMul; by default it rounds the activations of the fused op."""
    graph = tx.load(FOLDER / "llama-4bit-qdq.onnx")
    if dtype == "int4":
        with graph.editing():
            for value in [v for v in graph.variables if v.dtype is tx.DType.uint4]:
                value.data = ArrayConstant((value.data.array().astype(np.int8) - 8).astype(tx.DType.int4.numpy))
                value.type = value.data.type
    feeds = dict(np.load(FOLDER / "llama.npz"))
    result, expected = (graph.run(feeds, backend=name)["logits"] for name in ("onnxruntime", "numpy"))
    assert np.abs(result - expected).max() < 1e-5 * np.ptp(expected)
