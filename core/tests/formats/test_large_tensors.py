"""Large initializers are views of the file's bytes, and behave as if they were in the message."""

import pickle

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from tenonnx import InvalidModel, load
from tenonnx.formats.onnx import large_tensors


@pytest.fixture(autouse=True)
def everything_is_large(monkeypatch):
    monkeypatch.setattr(large_tensors, "LARGE_FILE", 0)
    monkeypatch.setattr(large_tensors, "LARGE", 64)


def made(path, **changes):
    rng = np.random.default_rng(0)
    weights = [
        numpy_helper.from_array(rng.standard_normal((8, 8), np.float32), "first"),
        numpy_helper.from_array(np.float32(2), "small"),
        numpy_helper.from_array(rng.standard_normal((8, 8), np.float32), "second"),
        helper.make_tensor("typed", TensorProto.FLOAT, [64], list(range(64))),
        helper.make_tensor("packed", TensorProto.INT4, [400], bytes(range(200)), raw=True),
    ]
    weights[2].doc_string = "with a note"
    nodes = [
        helper.make_node("MatMul", ["x", "first"], ["a"]),
        helper.make_node("Mul", ["a", "small"], ["b"]),
        helper.make_node("MatMul", ["b", "second"], ["y"]),
    ]
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", 8]) for name in "xy"]
    graph = helper.make_graph(nodes, "made", ends[:1], ends[1:], weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    for name, value in changes.items():
        setattr(model.graph.initializer[0], name, value)
    onnx.save(model, path)
    return model


def test_the_graph_equals_that_of_the_whole_message(tmp_path):
    model = made(tmp_path / "m.onnx")
    graph, whole = load(tmp_path / "m.onnx"), load(model)
    assert [value.name for value in graph.variables] == [value.name for value in whole.variables]
    outside = {value.name: value.data.raw is not None for value in graph.variables}
    assert outside == {"first": True, "small": False, "second": True, "typed": False, "packed": True}
    for one, two in zip(graph.variables, whole.variables, strict=True):
        assert np.array_equal(one.data.array(), two.data.array())
    first = graph.variables[0].data
    assert np.shares_memory(first.array(), np.frombuffer(first.raw, np.uint8))
    for folder, each in (("parts", graph), ("whole", whole)):
        (tmp_path / folder).mkdir()
        each.save(tmp_path / folder / "m.onnx")
        each.save(tmp_path / folder / "m.safetensors")
    written = onnx.load(tmp_path / "parts" / "m.onnx")
    assert written == onnx.load(tmp_path / "whole" / "m.onnx")
    assert written.graph.initializer[2].doc_string == "with a note"
    assert load(tmp_path / "parts" / "m.safetensors").variables[2].data.proto.doc_string == "with a note"
    copied = pickle.loads(pickle.dumps(graph))
    assert np.array_equal(copied.variables[4].data.array(), whole.variables[4].data.array())


def test_a_tensor_of_the_wrong_size_is_refused_when_it_is_decoded(tmp_path):
    made(tmp_path / "m.onnx", raw_data=bytes(100))
    with pytest.raises(InvalidModel, match="first"):
        load(tmp_path / "m.onnx").variables[0].data.array()


@pytest.mark.parametrize("length", [1, 40, 300, 700])
def test_a_file_that_is_cut_short_is_refused(tmp_path, length):
    made(tmp_path / "m.onnx")
    contents = (tmp_path / "m.onnx").read_bytes()
    (tmp_path / "m.onnx").write_bytes(contents[:-length])
    with pytest.raises(InvalidModel, match=r"m\.onnx"):
        load(tmp_path / "m.onnx")


def test_a_message_with_two_graphs_is_left_to_the_parser(tmp_path):
    made(tmp_path / "m.onnx")
    contents = (tmp_path / "m.onnx").read_bytes()
    more = onnx.ModelProto(graph=onnx.GraphProto(doc_string="more")).SerializeToString()
    data, large = large_tensors.without_large_tensors(contents + more)
    assert data == contents + more
    assert not large
