"""Equivalent forms of one model in a file."""

import io
import pickle

import numpy as np
import onnx
import pytest
from onnx import AttributeProto, TensorProto, helper, numpy_helper

import tenonnx as tx
from tenonnx.errors import InvalidCall, InvalidModel, NotRepresentable
from tenonnx.formats.onnx.attributes import read_attribute, write_attribute
from tenonnx.formats.onnx.reader import read
from tenonnx.formats.onnx.sort import read_names
from tenonnx_convert.convert import export, to_proto

X = helper.make_tensor_value_info("x", TensorProto.FLOAT, [3])
Y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [3])


def written(value):
    proto = AttributeProto()
    write_attribute("a", value, proto, lambda graph, message: None)
    return proto


def sparse():
    values = numpy_helper.from_array(np.array([1, 2], np.float32), "v")
    return helper.make_sparse_tensor(values, numpy_helper.from_array(np.array([0, 2]), "v_indices"), [4])


@pytest.mark.parametrize(
    "proto",
    [
        AttributeProto(name="a", type=AttributeProto.SPARSE_TENSORS, sparse_tensors=[sparse(), sparse()]),
        AttributeProto(name="a", type=AttributeProto.SPARSE_TENSOR, sparse_tensor=sparse()),
        AttributeProto(name="a", type=AttributeProto.TENSORS, tensors=[numpy_helper.from_array(np.ones(2), "t")]),
        AttributeProto(name="a", type=AttributeProto.TENSOR, t=numpy_helper.from_array(np.ones(2), "t")),
    ],
    ids=["sparse tensors", "sparse tensor", "tensors", "tensor"],
)
def test_a_list_of_tensors_comes_back_as_one_tensor_does(proto):
    assert written(read_attribute(proto, lambda message: None)) == proto


@pytest.mark.parametrize("item", [np.int64(1), None], ids=["NumPy integer", "None"])
def test_invalid_attributes_are_refused_in_lists_too(item):
    with pytest.raises(InvalidModel, match='attribute "a" is of a type that ONNX does not define'):
        written(item)
    with pytest.raises(InvalidModel, match='attribute "a" does not hold items of one type'):
        written([item])


@pytest.fixture
def external(tmp_path):
    weight = numpy_helper.from_array(np.arange(3, dtype=np.float32), "w")
    weight.doc_string = "said of it"
    graph = helper.make_graph([helper.make_node("Add", ["x", "w"], ["y"])], "g", [X], [Y], [weight])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save_model(model, tmp_path / "m.onnx", save_as_external_data=True, size_threshold=0, location="m.data")
    return read(tmp_path / "m.onnx")


def test_messages_and_pickles_contain_external_data_like_streams(external):
    stream = io.BytesIO()
    export(external, stream)
    for again in (read(stream.getvalue()), read(to_proto(external)), pickle.loads(pickle.dumps(external))):
        (weight,) = again.variables
        np.testing.assert_array_equal(weight.data.array(), [0, 1, 2])
        assert weight.data.proto.doc_string == "said of it"


def test_the_ir_version_of_overloads_is_needed_by_calls_that_are_new_too():
    relu = helper.make_function(
        "own", "F", ["a"], ["b"], [helper.make_node("Relu", ["a"], ["b"])], [helper.make_opsetid("", 17)]
    )
    relu.overload = "o"
    call = helper.make_node("F", ["x"], ["y"], domain="own", overload="o")
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("own", 1)]
    graph = helper.make_graph([call], "g", [X], [Y])
    loaded = read(helper.make_model(graph, opset_imports=imports, ir_version=10, functions=[relu]))
    for node in loaded.nodes:
        node.origin = None
    with pytest.raises(NotRepresentable, match=r"IR version .* is too old for"):
        export(loaded, io.BytesIO(), ir_version=8)


def test_a_stream_of_text_is_refused_as_one_to_write_is(external):
    with pytest.raises(InvalidCall, match="cannot write binary data to the stream"):
        export(external, io.StringIO())
    with pytest.raises(InvalidCall, match="the stream does not return bytes"):
        tx.load(io.StringIO("text"))


def test_a_name_without_a_stem_is_native_neither_to_save_nor_to_load(external, tmp_path):
    external.save(tmp_path / ".safetensors")
    assert onnx.load(tmp_path / ".safetensors").graph.output


def test_a_subgraph_reads_neither_its_dense_nor_its_sparse_initializers_from_outside():
    weight = numpy_helper.from_array(np.ones(4, np.float32), "w")
    branch = helper.make_graph([helper.make_node("Sum", ["w", "v", "x"], ["z"])], "branch", [], [], [weight])
    branch.sparse_initializer.append(sparse())
    assert list(read_names(helper.make_node("If", ["c"], ["y"], then_branch=branch))) == ["c", "x"]


def test_branches_without_nodes_are_clusters_of_their_own():
    weight = numpy_helper.from_array(np.ones(3, np.float32), "w")
    branches = [
        helper.make_graph([], name, [], [helper.make_tensor_value_info("w", 1, [3])], [weight]) for name in ("a", "b")
    ]
    call = helper.make_node("If", ["c"], ["y"], then_branch=branches[0], else_branch=branches[1])
    graph = helper.make_graph([call], "g", [helper.make_tensor_value_info("c", TensorProto.BOOL, [])], [Y])
    lines = read(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)).to_dot()
    clusters = [line.split()[1] for line in lines.splitlines() if "subgraph" in line]
    assert len(clusters) == len(set(clusters)) == 2
