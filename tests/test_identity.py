"""Import and export at the same opset reproduce the message exactly."""

import io

import onnx
import pytest
from models import SAMPLES, example, suite_files

import tenonnx as tx

FILES = [*suite_files(), *(example(name) for name in SAMPLES)]


@pytest.mark.parametrize("path", FILES, ids=lambda p: "/".join(p.parts[-2:]))
def test_import_then_export_is_the_identity(path):
    stream = io.BytesIO()
    report = tx.export(tx.load(path), stream)
    assert onnx.ModelProto.FromString(stream.getvalue()) == onnx.load(path)
    assert report.rewritten == []


@pytest.mark.parametrize("name", SAMPLES)
def test_inference_and_running_do_not_change_the_graph(name):
    graph = tx.load(example(name))
    graph.infer()
    graph.compile("numpy")
    stream = io.BytesIO()
    tx.export(graph, stream)
    assert onnx.ModelProto.FromString(stream.getvalue()) == onnx.load(example(name))


@pytest.mark.parametrize("name", SAMPLES)
def test_the_native_file_holds_the_same_model(name, tmp_path):
    tx.load(example(name)).save(tmp_path / "graph.safetensors")
    stream = io.BytesIO()
    tx.export(tx.load(tmp_path / "graph.safetensors"), stream)
    assert onnx.ModelProto.FromString(stream.getvalue()) == onnx.load(example(name))
