"""Models written as LiteRT files."""

from pathlib import Path

import numpy as np
import onnx.parser
import pytest
import tflite
from ai_edge_litert.interpreter import Interpreter

import tenonnx as tx
import tenonnx_standard as ops
from tenonnx.errors import NotRepresentable
from tenonnx_litert.reading.reader import VERIFICATION, read_file

EXAMPLES = Path(__file__).parents[3] / "examples"
ZOO = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light"


@pytest.mark.parametrize(
    "name", ["digits/digits", "digits_cnn/digits-cnn", "exports/vit-script", "exports/resnet-dynamo"]
)
def test_a_model_is_written_with_its_dims(name, tmp_path):
    source = EXAMPLES / f"{name}.onnx"
    before = source.read_bytes(), source.stat().st_mtime_ns
    report = tx.convert(source, tmp_path / "m.tflite")
    assert report.verification.equal
    assert {each.backend.partition(",")[0] for each in report.verification.outputs} == {"LiteRT in ai_edge_litert"}
    assert any("batch=3" in run.covers for run in report.verification.runs)
    assert [path.name for path in tmp_path.iterdir()] == ["m.tflite"]
    assert (source.read_bytes(), source.stat().st_mtime_ns) == before


@pytest.mark.parametrize("name", ["shufflenet"])
def test_a_model_of_the_zoo_computes_the_same(name, tmp_path):
    report = tx.convert(ZOO / f"light_{name}.onnx", tmp_path / "m.tflite")
    assert report.verification.equal


def test_a_signature_names_inputs_and_outputs(tmp_path):
    path, feeds = tmp_path / "m.tflite", np.random.default_rng(0).random((5, 64), np.float32)
    tx.convert(EXAMPLES / "digits/digits.onnx", path)
    interpreter = Interpreter(str(path))
    (key,) = interpreter.get_signature_list()
    assert key == "serving_default"
    assert [list(each["shape_signature"]) for each in interpreter.get_input_details()] == [[-1, 64]]
    interpreter.resize_tensor_input(interpreter.get_input_details()[0]["index"], feeds.shape)
    result = interpreter.get_signature_runner(key)(pixels=feeds)
    expected = tx.load(EXAMPLES / "digits/digits.onnx").run({"pixels": feeds}, backend="numpy")
    np.testing.assert_allclose(result["probabilities"], expected["probabilities"], rtol=1e-4, atol=1e-6)


def test_a_file_that_is_read_becomes_the_same_operators(tmp_path):
    first, second = tmp_path / "first.tflite", tmp_path / "second.tflite"
    tx.convert(EXAMPLES / "digits_cnn/digits-cnn.onnx", first)
    report = tx.convert(first, second)
    assert report.verification.equal
    assert operators(first) == operators(second)


def operators(path):
    model = tflite.Model.GetRootAsModel(path.read_bytes(), 0)
    codes = [model.OperatorCodes(k).BuiltinCode() for k in range(model.OperatorCodesLength())]
    graph = model.Subgraphs(0)
    return [codes[graph.Operators(k).OpcodeIndex()] for k in range(graph.OperatorsLength())]


def test_metadata_and_the_verdict_are_in_the_file(tmp_path):
    graph = tx.Graph(opsets={"ai.onnx": 21})
    graph.output("y", ops.relu(graph.input("x", "float32", ("n", 3))))
    metadata = {"author": "Noether", "license": "Some text\n\nof several lines."}
    graph.metadata.update(metadata)
    path = tmp_path / "m.tflite"
    tx.convert(graph, path)
    result = read_file(path).metadata
    assert result == {**metadata, VERIFICATION: "equal, bit for bit"}
    assert tx.load(path).metadata == metadata
    tx.convert(graph, path, verify=False)
    assert read_file(path).metadata == metadata


def test_every_unsupported_node_is_named_and_nothing_is_written(tmp_path):
    graph = tx.Graph(opsets={"ai.onnx": 21})
    x = graph.input("x", "float64", ("n",))
    graph.output("y", ops.string_normalizer(graph.input("s", "string", ("m",))))
    graph.output("z", ops.add(ops.mul(x, x), x))
    with pytest.raises(NotRepresentable) as caught:
        tx.convert(graph, tmp_path / "m.tflite")
    for word in ("StringNormalizer", "Mul", "Add", "float64"):
        assert word in str(caught.value)
    assert list(tmp_path.iterdir()) == []


def test_an_invalid_model_is_not_called_unsupported(tmp_path):
    text = '<ir_version: 8, opset_import: ["": 18]> g (float[N, 3] x, float[4] w) => (float[N, 3] y) { y = Mul(x, w) }'
    graph = tx.load(onnx.parser.parse_model(text))
    with pytest.raises(tx.InvalidModel, match="do not broadcast"):
        tx.convert(graph, tmp_path / "m.tflite")
    assert list(tmp_path.iterdir()) == []


def test_a_refusal_leaves_an_existing_file_unchanged(tmp_path):
    path = tmp_path / "m.tflite"
    path.write_bytes(b"before")
    graph = tx.Graph(opsets={"ai.onnx": 21})
    graph.output("y", ops.identity(graph.input("x", "string", ("n",))))
    with pytest.raises(NotRepresentable):
        tx.convert(graph, path, overwrite=True)
    assert path.read_bytes() == b"before"
