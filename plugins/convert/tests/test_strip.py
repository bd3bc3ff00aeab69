"""Stripping: paths of the exporting machine are removed, and module paths are kept for tools."""

import sys
from pathlib import Path

import numpy as np
import onnx
import pytest

import tenonnx as tx
from tenonnx.tools import STEPS, Conversion, ConvertConfig
from tenonnx_convert.strip import holds_path

HOME = "/home/somebody/train/model.py"
TRACE = f'File "{HOME}", line 12, in forward\n    y = torch.relu(x)'
SCOPES = "['', 'encoder', 'encoder.layers.0', 'relu']"


def exported():
    """A model with notes everywhere, as exporters leave them."""
    text = """<ir_version: 10, opset_import: ["": 21, "f": 1], producer_name: "pytorch">
        g (bool c, float[2] x) => (float[2] y) <float[2] w = {1, 2}> {
        a = Add (x, w)
        z = If (c) <then_branch = t () => (float[2] p) { p = Relu(a) },
                    else_branch = e () => (float[2] q) { q = Abs(a) }>
        y = f.twice(z) }
        <domain: "f", opset_import: ["": 21]> twice (v) => (u) { u = Add(v, v) }"""
    model = onnx.parser.parse_model(text)
    model.producer_version = f"2.12 of {HOME}"
    model.graph.node[0].name = f"{HOME}:add"
    branch = model.graph.node[1].attribute[0].g
    nodes = [*model.graph.node, *branch.node, *model.functions[0].node]
    for each in (model, model.graph, model.functions[0], branch, *nodes, *model.graph.input, *model.graph.output):
        each.doc_string = TRACE
    for each in (*nodes, *model.graph.initializer, *model.graph.input, model.graph):
        each.metadata_props.add(key="pkg.torch.onnx.stack_trace", value="relu(x)")
        each.metadata_props.add(key="pkg.torch.onnx.name_scopes", value=SCOPES)
        each.metadata_props.add(key="from", value=f"run by {HOME}")
    model.graph.initializer[0].doc_string = HOME
    model.metadata_props.add(key="labels", value="cat,dog")
    model.metadata_props.add(key="source", value=r"C:\Users\somebody\model.py")
    return model


@pytest.mark.parametrize("suffix", ["onnx", "safetensors"])
def test_no_path_is_in_a_stripped_file(suffix, tmp_path):
    onnx.save(exported(), tmp_path / "in.onnx")
    tx.convert(tmp_path / "in.onnx", tmp_path / f"out.{suffix}", strip=True)
    written = (tmp_path / f"out.{suffix}").read_bytes()
    assert b"somebody" not in written
    assert b"in forward" not in written


def test_metadata_for_tools_stays_and_the_source_is_unchanged(tmp_path):
    onnx.save(exported(), tmp_path / "in.onnx")
    graph = tx.load(tmp_path / "in.onnx")
    tx.convert(graph, tmp_path / "out.onnx", strip=True)
    model = onnx.load(tmp_path / "out.onnx")
    onnx.checker.check_model(model, full_check=True)
    notes = [{each.key: each.value for each in node.metadata_props} for node in model.graph.node]
    assert notes == [{"pkg.torch.onnx.name_scopes": SCOPES}] * 3
    assert {each.key: each.value for each in model.metadata_props}["labels"] == "cat,dog"
    assert model.graph.node[0].name == "model.py:add"
    assert onnx.numpy_helper.to_array(model.graph.initializer[0]).tolist() == [1, 2]
    tx.convert(graph, tmp_path / "again.onnx")
    assert onnx.load(tmp_path / "again.onnx") == onnx.load(tmp_path / "in.onnx")


def test_files_are_not_stripped_by_default(tmp_path):
    onnx.save(exported(), tmp_path / "in.onnx")
    tx.convert(tmp_path / "in.onnx", tmp_path / "out.onnx")
    assert onnx.load(tmp_path / "out.onnx") == exported()


@pytest.mark.parametrize(
    "text",
    [
        HOME,
        TRACE,
        "from /tmp/x",
        r"C:\a\b.py",
        "D:/a/b.py",
        r"\\host\share\x",
        "file:///srv/x",
        str(Path(sys.prefix) / "lib"),
        str(Path.cwd() / "x"),
    ],
)
def test_paths_are_found(text):
    assert holds_path(text, [str(Path.cwd()), sys.prefix])


@pytest.mark.parametrize(
    "text", ["/encoder/layers.0/Relu", "a/b", "1/2", "http://x.org/home/a", SCOPES, "N: batch", "x:\\", "", "and/or /"]
)
def test_other_texts_are_not_treated_as_paths(text):
    assert not holds_path(text)


def test_large_weights_with_notes_are_not_lost(tmp_path):
    model = exported()
    model.graph.initializer[0].raw_data = np.asarray([3, 4], np.float32).tobytes()
    del model.graph.initializer[0].float_data[:]
    onnx.save(model, tmp_path / "in.onnx", save_as_external_data=True, size_threshold=0, location="w.bin")
    tx.convert(tmp_path / "in.onnx", tmp_path / "out.onnx", strip=True)
    assert np.asarray(tx.load(tmp_path / "out.onnx").variables[0]).tolist() == [3, 4]
    assert b"somebody" not in (tmp_path / "out.onnx").read_bytes()


def test_models_from_a_framework_are_stripped_by_default(tmp_path):
    onnx.save(exported(), tmp_path / "in.onnx")
    graph = tx.load(tmp_path / "in.onnx")

    def verifier(written, atol=None, rtol=None):
        return tx.verify(graph, written)

    for expected, is_there in ((None, False), (False, True)):
        path = tmp_path / "out.onnx"
        conversion = Conversion(
            graph, path, ConvertConfig(strip=expected), STEPS, verifier=verifier, name="a framework"
        )
        conversion.run()
        assert (b"somebody" in path.read_bytes()) is is_there
