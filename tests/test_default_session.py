"""Verification in an InferenceSession with default options, as users run files."""

import json

import numpy as np
import onnx
import onnxruntime
import pytest
from models import EXAMPLES
from onnx import TensorProto, helper, numpy_helper

import tenonnx as tx
from tenonnx_cli import main

#: A model with blockwise products, which onnxruntime's default options compute with 8-bit activations.
SPOILED = EXAMPLES / "quantized/llama-4bit-qdq.onnx"


def in_plain_session(model, feeds):
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return session.run(None, feeds)


def blocks(rows=64, columns=48, block=32):
    """The product of ``x`` and blockwise 4-bit weights, in the form of quantizers."""
    random = np.random.default_rng(0)
    quantized = helper.make_tensor(
        "q", TensorProto.UINT4, (rows, columns), random.integers(0, 16, rows * columns).tolist()
    )
    zeros = helper.make_tensor("z", TensorProto.UINT4, (rows // block, columns), [8] * (rows // block * columns))
    steps = numpy_helper.from_array((random.random((rows // block, columns)) / 10).astype(np.float32), "s")
    nodes = [
        helper.make_node("DequantizeLinear", ["q", "s", "z"], ["w"], axis=0, block_size=block),
        helper.make_node("MatMul", ["x", "w"], ["y"]),
    ]
    x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, ["n", d]) for n, d in (("x", rows), ("y", columns)))
    graph = helper.make_graph(nodes, "blocks", [x], [y], [quantized, zeros, steps])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def test_errors_of_a_plain_session_are_reported_with_advice():
    graph = tx.load(blocks())
    result = tx.verify(graph, blocks())
    assert result.equal
    (used,) = result.default_session
    assert not used.equal
    assert used.original_too
    assert "y differs by up to" in used.reason
    assert "session.qdq_matmulnbits_accuracy_level=1" in used.helps
    feeds = {"x": np.random.default_rng(1).standard_normal((3, 64)).astype(np.float32)}
    (plain,) = in_plain_session(blocks(), feeds)
    options = onnxruntime.SessionOptions()
    options.add_session_config_entry("session.qdq_matmulnbits_accuracy_level", "1")
    (helped,) = onnxruntime.InferenceSession(blocks().SerializeToString(), options).run(None, feeds)
    expected = graph.run(feeds, backend="numpy")["y"]
    assert np.abs(plain - expected).max() > 1e-3 > 1e-5 > np.abs(helped - expected).max()


def test_a_model_that_does_not_load_is_reported():
    result = tx.verify(tx.load(EXAMPLES / "digits_nhwc/digits-nhwc.onnx"), EXAMPLES / "digits_nhwc/digits-nhwc.onnx")
    (used,) = result.default_session
    assert result.equal
    assert not used.equal
    assert "does not load the model" in used.reason
    assert "does not load" in result.summary()


@pytest.mark.parametrize("name", ["digits/digits", "quantized/resnet-qdq", "quantized/bert-dynamic", "llama/llama"])
def test_other_models_are_equal_in_a_plain_session(name):
    path = EXAMPLES / f"{name}.onnx"
    (used,) = tx.verify(tx.load(path), path).default_session
    assert used.equal
    assert str(used) == "the same in a plain session of onnxruntime"


def test_the_command_line_reports_them(tmp_path, capsys):
    assert main(["convert", str(SPOILED), "-o", str(tmp_path / "m.onnx")]) == 0
    output = capsys.readouterr().out
    assert "not the same in a plain session of onnxruntime, by its default options: logits differs" in output
    assert "so does the original; the config entry session.qdq_matmulnbits_accuracy_level=1 helps" in output
    assert main(["convert", str(SPOILED), "-o", str(tmp_path / "m.onnx"), "--json"]) == 0
    (used,) = json.loads(capsys.readouterr().out)["verification"]["default_session"]
    assert used["backend"] == "onnxruntime"
    assert used["original_too"]
    onnx.load(tmp_path / "m.onnx")


def test_backends_without_plain_sessions_and_graphs_are_skipped():
    graph = tx.load(EXAMPLES / "digits/digits.onnx")
    assert tx.verify(graph, graph, backends=["numpy"]).default_session == []
    assert tx.verify(graph).default_session == []
