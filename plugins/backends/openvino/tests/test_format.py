"""Models written as OpenVINO's intermediate representation."""

import re
from pathlib import Path

import numpy as np
import openvino
import pytest

import tenonnx as tx
import tenonnx_standard as ops
from tenonnx.errors import NotRepresentable

EXAMPLES = Path(__file__).parents[4] / "examples"


@pytest.mark.parametrize("name", ["digits/digits", "digits_cnn/digits-cnn", "decoder/decoder", "quantized/resnet-qdq"])
def test_a_model_is_written_with_its_dims(name, tmp_path):
    report = tx.convert(EXAMPLES / f"{name}.onnx", tmp_path / "m.xml")
    assert report.verification.equal
    assert {each.backend.partition(",")[0] for each in report.verification.outputs} == {"OpenVINO IR in openvino"}
    assert any("batch=3" in run.covers for run in report.verification.runs)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["m.bin", "m.xml"]


def test_weights_keep_their_32_bits(tmp_path):
    path, feeds = tmp_path / "m.xml", {"pixels": np.random.default_rng(0).random((5, 64), np.float32)}
    tx.convert(EXAMPLES / "digits/digits.onnx", path)
    result = openvino.Core().compile_model(path, "CPU", {"INFERENCE_PRECISION_HINT": "f32"})(feeds)
    expected = tx.load(EXAMPLES / "digits/digits.onnx").run(feeds, backend="numpy")
    np.testing.assert_allclose(result["probabilities"], expected["probabilities"], rtol=1e-4, atol=1e-6)


def test_unsupported_models_are_refused(tmp_path):
    graph = tx.Graph(opsets={"ai.onnx": 17})
    graph.output("y", ops.identity(graph.input("x", "string", ("n",))))
    with pytest.raises(NotRepresentable, match="no OpenVINO IR form"):
        tx.convert(graph, tmp_path / "m.xml")
    assert list(tmp_path.iterdir()) == []


def test_the_page_runs(monkeypatch, tmp_path):
    (tmp_path / "examples").symlink_to(EXAMPLES)
    monkeypatch.chdir(tmp_path)
    page = (EXAMPLES.parent / "docs/how-to/to-openvino.md").read_text("utf-8")
    (block,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    exec(compile(block, "to-openvino", "exec"), {"__name__": "page"})
