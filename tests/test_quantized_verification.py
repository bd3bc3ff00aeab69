"""Verification of quantized models: on the same backend, and within the effects of rounding ties."""

import io
import warnings

import onnx
import pytest
from models import EXAMPLES, suite_files

import tenonnx as tx
from tenonnx.graph.constants import ArrayConstant
from tenonnx_cli import main

FILES = sorted(EXAMPLES.rglob("*.onnx"))

#: Files of the suites with one of these words in their name, and one in 25 of the others.
QUANTIZED, EVERY = ("quantize", "qlinear", "integer", "int4", "int8", "float8"), 25


def sampled():
    files = [path for path in suite_files() if "light" not in str(path)]
    of_quantized = [path for path in files if any(word in path.parent.name for word in QUANTIZED)]
    return [*of_quantized, *[path for path in files if path not in of_quantized][::EVERY]]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_every_example_converts_to_itself(path, tmp_path, capsys):
    assert main(["convert", str(path), "-o", str(tmp_path / "same.onnx")]) == 0
    assert "bit for bit" in capsys.readouterr().out
    assert onnx.load(tmp_path / "same.onnx") == onnx.load(path)


@pytest.mark.parametrize("path", sampled(), ids=lambda path: path.parent.name)
def test_files_of_the_suites_convert_to_themselves(path, tmp_path, capfd):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert main(["convert", str(path), "-o", str(tmp_path / "same.onnx")]) == 0, capfd.readouterr().err
    assert onnx.load(tmp_path / "same.onnx") == onnx.load(path)


@pytest.mark.parametrize("name", ["quantized/resnet-qdq", "llama/llama"])
def test_backends_may_differ_by_quantization_steps(name):
    graph = tx.load(EXAMPLES / f"{name}.onnx")
    result = tx.verify(graph)
    assert result.equal
    (worst,) = {output.grade for output in result.outputs} - {"bit for bit", "within rounding", "within tolerance"}
    assert worst == "within one quantization step" == result.grade
    assert "downstream of quantized values" in result.largest.rule
    assert not tx.verify(graph, atol=1e-4, rtol=1e-4).equal
    assert not tx.verify(graph, exact=True).equal


def test_the_allowance_for_quantization_does_not_hide_another_model():
    graph = tx.load(EXAMPLES / "quantized/resnet-qdq.onnx")
    other = graph.copy()
    weight = next(v for v in other.variables if v.tensor.rank == 4)
    quantized = weight.data.array().copy()
    quantized[0] = -quantized[0]
    weight.data = ArrayConstant(quantized)
    assert not tx.verify(graph, other).equal


def test_a_product_with_low_accuracy_level_is_lowered_exactly():
    graph = tx.load(EXAMPLES / "llama/llama.onnx")
    stream = io.BytesIO()
    tx.export(graph, stream, opset_version=21, domains=["ai.onnx"])
    result = tx.verify(graph, onnx.ModelProto.FromString(stream.getvalue()))
    assert result.raise_if_failed().equal
    assert {"by the original on numpy"} & {output.rule for output in result.outputs}


def test_a_type_error_already_in_the_original_is_a_note(tmp_path, capsys):
    """``onnx.checker`` cannot infer types after an unknown op, so a wrongly declared type only shows
    once the op is expanded."""
    path = tmp_path / "plain.onnx"
    llama = str(EXAMPLES / "llama/llama.onnx")
    assert main(["convert", llama, "-o", str(path), "--opset", "21", "--domains", "ai.onnx"]) == 0
    output = capsys.readouterr()
    assert "onnx.checker infers other types than are declared" in output.err
    assert "in numpy and onnxruntime" in output.out
