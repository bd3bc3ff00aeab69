"""Lower precisions: blockwise quantized weights, half precision, and loss of accuracy."""

import json
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
import transformers
from onnxruntime.quantization.matmul_bnb4_quantizer import MatMulBnb4Quantizer

import tenonnx as tx
import tenonnx_standard as ops
import tenonnx_transformers
from tenonnx_transformers.nf4_weights import quantized, with_nf4_weights
from tenonnx_transformers.parts import Part
from tenonnx_transformers.precisions import file_name, in_precision, loss_of

PART = Part("model", torch.nn.Identity(), lambda given: [], {}, ["logits"], {})


def product():
    """The graph of a matrix product with weights of 64 rows."""
    return tx.load(torch.nn.Linear(64, 8), torch.randn(1, 2, 64), verify=False)


@pytest.mark.parametrize(
    ("precision", "target", "op"),
    [
        ("int4", None, "MatMulNBits"),
        ("int8", "onnxruntime", "MatMulNBits"),
        ("int4", "openvino", "DequantizeLinear"),
        ("bnb4", None, "MatMulBnb4"),
    ],
)
def test_weights_become_blocks(precision, target, op):
    graph = in_precision(product(), precision, target)
    assert op in {node.op_type for node in graph.nodes}
    assert [value.dtype for value in graph.inputs] == [tx.DType.float32]


def test_weights_in_nf4_equal_those_of_onnxruntime():
    weights = np.random.default_rng(0).standard_normal((70, 9)).astype(np.float32)
    packed, largest = MatMulBnb4Quantizer(onnx.ModelProto(), quant_type=1, block_size=64).bnb4_block_quant(weights)
    ours = quantized(np.ascontiguousarray(weights.T))
    np.testing.assert_array_equal(ours[0], packed)
    np.testing.assert_array_equal(ours[1], largest)


@pytest.mark.parametrize("attributes", [{}, {"transB": 1}, {"alpha": 2.0}])
def test_products_in_nf4(attributes):
    """Products with a bias are quantized, too, but not those with another factor."""
    graph = tx.Graph(opsets={"ai.onnx": 17})
    x = graph.input("x", "float32", ("n", 16))
    weights = (np.arange(128, dtype=np.float32) % 3 - 1).reshape(*((8, 16) if "transB" in attributes else (16, 8)))
    w, bias = graph.variable("w", weights), graph.variable("b", np.ones(8, np.float32))
    graph.output(
        "y", ops.add(ops.gemm(x, w, bias, **attributes), ops.matmul(x, graph.variable("v", np.ones((16, 8), "f"))))
    )
    lowered = with_nf4_weights(graph)
    kinds = [node.op_type for node in lowered.nodes]
    assert (kinds.count("MatMulBnb4"), kinds.count("Gemm")) == ((1, 1) if "alpha" in attributes else (2, 0))
    feeds = {"x": np.random.default_rng(0).standard_normal((3, 16)).astype(np.float32)}
    np.testing.assert_allclose(
        lowered.run(feeds, backend="numpy")["y"], graph.run(feeds, backend="numpy")["y"], rtol=1e-4, atol=1e-4
    )


def test_unsupported_precisions_are_refused(tmp_path):
    with pytest.raises(tx.NotRepresentable, match="only onnxruntime has weights in NF4"):
        in_precision(product(), "bnb4", "openvino")
    graph = tx.Graph()
    graph.output("y", ops.relu(graph.input("x", "float32", (2,))))
    with pytest.raises(tx.InvalidCall, match="no weights to quantize"):
        in_precision(graph, "bnb4", None)
    with pytest.raises(tx.NotRepresentable, match=r"transformers\.js has no dtype"):
        tenonnx_transformers.export(torch.nn.Identity(), tmp_path, layout="transformers.js", precision="bf16")


def test_half_precision_keeps_the_interface():
    graph = in_precision(product(), "fp16", None)
    assert graph.inputs[0].dtype is graph.outputs[0].dtype is tx.DType.float32
    assert tx.DType.float16 in {value.dtype for value in graph.variables}


def test_a_large_error_is_rejected():
    signal = np.float32([1, 2, 3])
    assert loss_of(PART, "int8", [signal], [signal * 1.01]).sqnr == pytest.approx(40, abs=0.01)
    with pytest.raises(tx.VerificationFailed, match='"logits" of model in int4 has too large an error') as error:
        loss_of(PART, "int4", [signal], [signal * 1.6])
    assert "4.4 dB" in str(error.value)
    with pytest.raises(tx.VerificationFailed, match="too large"):
        loss_of(PART, "fp16", [signal], [signal * np.nan])


def test_transformers_js_finds_a_file_by_its_precision():
    path = Path("onnx/model.onnx")
    assert file_name(path, "int4", "transformers.js").name == "model_q4.onnx"
    assert file_name(path, "int8", "transformers.js").name == "model_quantized.onnx"
    assert file_name(path, "bnb4", "transformers.js").name == "model_bnb4.onnx"
    assert file_name(path, "int4", "genai") == file_name(path, "fp32", "transformers.js") == path


def test_an_unknown_precision_is_rejected(tmp_path):
    with pytest.raises(tx.InvalidCall, match="unknown precision") as error:
        tenonnx_transformers.export(torch.nn.Identity(), tmp_path / "out", precision="int3")
    assert "fp32, fp16, bf16, int8, int4" in str(error.value)


def test_a_classifier_in_four_bits(tmp_path):
    config = transformers.BertConfig(
        vocab_size=60, hidden_size=32, num_hidden_layers=1, num_attention_heads=2, intermediate_size=64, pad_token_id=0
    )
    torch.manual_seed(0)
    model = transformers.BertForSequenceClassification(config).eval()
    done = tenonnx_transformers.export(model, tmp_path, layout="transformers.js", precision="int4")
    assert done.graphs == ["onnx/model_q4.onnx"]
    assert {"config.json", "quantize_config.json"} <= set(done.files)
    assert json.loads((tmp_path / "config.json").read_text())["transformers.js_config"] == {"dtype": "q4"}
    assert json.loads((tmp_path / "quantize_config.json").read_text())["modes"] == ["q4"]
    assert not (tmp_path / "onnx" / "model.onnx").exists()
    (loss,) = done.losses
    assert (loss.output, loss.precision) == ("logits", "int4")
    assert loss.sqnr > 6
    assert f"{loss.sqnr:.1f} dB SQNR in int4" in str(done)
    assert "MatMulNBits" in {node.op_type for node in tx.load(tmp_path / "onnx" / "model_q4.onnx").nodes}
