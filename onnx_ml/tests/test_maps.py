"""Maps as feeds, and their removal from models."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

import tenonnx as tx
from tenonnx_onnx_ml.maps import cast_map, dict_vectorizer, without_zip_map

IRIS = Path(__file__).parents[2] / "examples" / "iris"


def vectorizer(dtype):
    """A model that converts a map from strings to numbers into a row."""
    node = onnx.helper.make_node("DictVectorizer", ["x"], ["y"], domain="ai.onnx.ml", string_vocabulary=["b", "a"])
    kind = onnx.helper.make_map_type_proto(onnx.TensorProto.STRING, onnx.helper.make_tensor_type_proto(dtype, []))
    x, y = onnx.helper.make_value_info("x", kind), onnx.helper.make_empty_tensor_value_info("y")
    opsets = [onnx.helper.make_opsetid("", 21), onnx.helper.make_opsetid("ai.onnx.ml", 3)]
    return onnx.helper.make_model(onnx.helper.make_graph([node], "g", [x], [y]), opset_imports=opsets, ir_version=10)


@pytest.mark.parametrize("backend", ["numpy", "onnxruntime"])
def test_python_floats_have_the_type_of_the_map(backend):
    y = tx.load(vectorizer(onnx.TensorProto.FLOAT)).run({"x": {"a": 0.1, "unknown": 3.0}}, backend=backend)["y"]
    assert y.dtype == np.float32
    np.testing.assert_array_equal(y, np.float32([[0, 0.1]]))


@pytest.mark.parametrize(
    ("feed", "message"),
    [
        ({1: 2}, "got a feed that is not map\\(string, int64"),
        ([("a", 1)], "given +list"),
        ({"a": 2.5}, "got a feed that is not int64"),
        ({"a": None}, "got a feed that is not int64"),
        ({"a": [1, 2]}, "got a feed that is not int64"),
        ({"a": 2, 3: 4}, "got a feed that is not map\\(string, int64"),
        ({}, "the map is empty"),
    ],
)
def test_other_feeds_are_refused(feed, message):
    with pytest.raises(tx.TenonnxError, match=message):
        tx.load(vectorizer(onnx.TensorProto.INT64)).run({"x": feed}, backend="numpy")


def test_cast_map():
    x = {2: np.float32(1.5), 0: np.float32(-2.75)}
    assert cast_map(x).tolist() == [[-2.75, 1.5]]
    assert cast_map(x, cast_to="TO_INT64", map_form="SPARSE", max_map=4).tolist() == [[-2, 0, 1, 0]]
    assert cast_map(x, cast_to="TO_STRING").tolist() == [["-2.750000", "1.500000"]]
    assert cast_map({1: "12", 0: "7"}, cast_to="TO_INT64").tolist() == [[7, 12]]


def test_words_of_a_map():
    assert dict_vectorizer({5: "x"}, int64_vocabulary=[4, 5, 5]).tolist() == [["", "x", "x"]]


@pytest.mark.parametrize("target", [{}, {"opset_version": 13, "domains": ["ai.onnx"]}])
def test_without_zip_map(tmp_path, target):
    """The tensors keep the names of the maps, and the model is valid."""
    graph = tx.load(IRIS / "iris.onnx")
    feeds = {"measurements": np.load(IRIS / "samples.npz")["measurements"]}
    before = graph.run(feeds, backend="numpy")
    tx.export(without_zip_map(graph), tmp_path / "plain.onnx", **target)
    onnx.checker.check_model(tmp_path / "plain.onnx", full_check=True)
    after = tx.load(tmp_path / "plain.onnx").run(feeds, backend="numpy")
    assert list(after) == list(before) == ["output_label", "output_probability"]
    rows = [list(row.values()) for row in before["output_probability"]]
    np.testing.assert_allclose(after["output_probability"], rows, rtol=1e-6)


def test_no_zipmap_is_a_flag_of_convert_and_plan(tmp_path, capsys):
    from tenonnx_cli import main

    plain = str(tmp_path / "plain.onnx")
    arguments = ["convert", str(IRIS / "iris.onnx"), "-o", plain, "--opset", "13", "--domains", "ai.onnx"]
    assert main(arguments) == 2
    assert main([*arguments, "--no-zipmap", "--no-verify"]) == 0
    planned = ["plan", *arguments[1:2], *arguments[4:]]
    assert (main(planned), main([*planned, "--no-zipmap"])) == (1, 0)
    assert main(["plan", "--help"]) == 0
    assert "Remove ZipMap: the outputs keep their names" in " ".join(capsys.readouterr().out.split())
    assert {node.domain for node in tx.load(plain).nodes} == {"ai.onnx"}


def test_maps_are_refused_with_the_way_out():
    with pytest.raises(tx.NotRepresentable, match=r"maps cannot be represented as tensors; .*--no-zipmap"):
        tx.retarget(tx.load(IRIS / "iris.onnx"), 21, domains=["ai.onnx"])
