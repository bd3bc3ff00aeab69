"""Malicious and malformed files are refused with the reason, within time and memory limits."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import tenonnx as tx
from tenonnx.formats.onnx import reader as reading
from tenonnx.formats.onnx.reader import read
from tenonnx.formats.onnx.writer import to_model
from tenonnx.registry.registry import Registry


def info(name, kind=TensorProto.FLOAT, dims=None):
    return helper.make_tensor_value_info(name, kind, dims)


def model_of(nodes, outputs=("y",), **graph):
    return helper.make_model(helper.make_graph(nodes, "g", [info("x")], [info(name) for name in outputs], **graph))


# ----- sparse tensors -------------------------------------------------------------------------------------------------


def external(name, kind, dims, location="data.bin"):
    proto = TensorProto(name=name, data_type=kind, dims=dims, data_location=TensorProto.EXTERNAL)
    proto.external_data.add(key="location", value=location)
    return proto


def sparse_model(values, indices, dims):
    sparse = helper.make_sparse_tensor(values, indices, dims)
    return model_of([helper.make_node("Add", ["x", "w"], ["y"])], sparse_initializer=[sparse])


def sparse(indices, dims, values=(5.0, 6.0), kind=TensorProto.INT64):
    given = np.asarray(indices)
    held = helper.make_tensor("i", kind, given.shape, given.reshape(-1))
    return sparse_model(helper.make_tensor("w", TensorProto.FLOAT, [len(values)], values), held, dims)


def contents(model, **keywords):
    (variable,) = read(model, registry=Registry(), **keywords).variables
    return variable.data.array()


@pytest.mark.parametrize("part", ["values", "indices"])
def test_sparse_tensors_are_only_read_in_the_models_folder(part, tmp_path, monkeypatch):
    (tmp_path / "outside").mkdir()
    (tmp_path / "inside").mkdir()
    (tmp_path / "outside" / "data.bin").write_bytes(bytes(16))
    parts = {
        "values": helper.make_tensor("w", TensorProto.FLOAT, [2], [5.0, 6.0]),
        "indices": helper.make_tensor("i", TensorProto.INT64, [2], [0, 1]),
    }
    kind = parts[part].data_type
    monkeypatch.chdir(tmp_path / "outside")  # where an empty folder name would lead
    for location in ("data.bin", str(tmp_path / "outside" / "data.bin")):
        parts[part] = external("w" if part == "values" else "i", kind, [2], location)
        model = sparse_model(**parts, dims=[4])
        with pytest.raises(tx.InvalidModel):
            read(model, base_dir=tmp_path / "inside", registry=Registry())
        with pytest.raises(tx.InvalidModel):
            read(model, registry=Registry())


def test_external_parts_of_sparse_tensors_are_read_and_written_with_them(tmp_path):
    (tmp_path / "data.bin").write_bytes(np.float32([5, 6]).tobytes())
    indices = helper.make_tensor("i", TensorProto.INT64, [2], [1, 3])
    model = sparse_model(external("w", TensorProto.FLOAT, [2]), indices, [4])
    assert contents(model, base_dir=tmp_path).tolist() == [0, 5, 0, 6]
    moved = to_model(read(model, base_dir=tmp_path, registry=Registry()))
    assert contents(moved).tolist() == [0, 5, 0, 6]


@pytest.mark.parametrize(
    "model",
    [
        sparse([0, -1], [4]),
        sparse([0, 4], [4]),
        sparse([[0, 0], [0, 2]], [2, 2]),
        sparse([[0], [1]], [2, 2]),
        sparse([0], [4]),
        sparse([0, 1], [4], kind=TensorProto.INT32),
        sparse([[[0]]], [4]),
    ],
    ids=["negative", "beyond", "beyond in a dim", "too few dims", "too few", "no int64", "rank 3"],
)
def test_malformed_sparse_tensors_are_refused(model):
    with pytest.raises(tx.InvalidModel, match='tensor "w" does not hold the contents of'):
        contents(model)


def test_a_sparse_tensor_is_densified_within_the_limit():
    assert contents(sparse([[0, 0], [1, 1]], [2, 2])).tolist() == [[5, 0], [0, 6]]
    model = sparse([0, 1], [1 << 20, 1 << 16])
    with pytest.raises(tx.LimitExceeded, match=r'sparse tensor "w".*"elements"'):
        contents(model)
    with tx.limits.override(elements=3), pytest.raises(tx.LimitExceeded):
        contents(sparse([0, 1], [4]))


# ----- order ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("order", [1, -1], ids=["from outside in", "from inside out"])
def test_unsorted_graphs_inside_each_other_are_read_in_linear_time(order, monkeypatch):
    depth = 20
    names = [f"x{k}" for k in range(depth)][::order]
    inner = helper.make_graph([helper.make_node("Sum", names, ["s"])], "leaf", [], [info("s")])
    for k in reversed(range(depth)):
        nodes = [
            helper.make_node("If", ["x"], [f"y{k}"], then_branch=inner),
            helper.make_node("Relu", ["x"], [f"x{k}"]),
        ]
        inner = helper.make_graph(nodes, f"g{k}", [], [info(f"y{k}")])
    reads = []
    original = reading.GraphReader.read
    monkeypatch.setattr(reading.GraphReader, "read", lambda self: reads.append(1) or original(self))
    model = model_of([*inner.node], ["y0"])
    graph = read(model, registry=Registry())
    assert [node.op_type for node in graph.nodes] == ["Relu", "If"]
    assert len(reads) <= (depth + 1) ** 2  # each graph once for each enclosing graph that had to be sorted


def test_graphs_inside_each_other_have_a_depth():
    model = model_of([], [])
    inner = model.graph
    for k in range(80):  # deeper than a file may be
        inner.output.extend([info(f"y{k}")])
        node = inner.node.add(op_type="If", input=["x"], output=[f"y{k}"])
        inner = node.attribute.add(name="then_branch", type=onnx.AttributeProto.GRAPH).g
    with pytest.raises(tx.LimitExceeded, match='"depth"'):
        read(model, registry=Registry())


# ----- attributes -----------------------------------------------------------------------------------------------------


def test_a_reference_outside_a_function_is_refused():
    model = model_of([helper.make_node("Relu", ["x"], ["y"])])
    model.graph.node[0].attribute.add(name="alpha", ref_attr_name="beta", type=onnx.AttributeProto.FLOAT)
    with pytest.raises(tx.InvalidModel, match='attribute "alpha" refers to an attribute of a call'):
        read(model, registry=Registry())


def test_an_attribute_of_an_unknown_type_is_refused():
    model = model_of([helper.make_node("Relu", ["x"], ["y"])])
    attribute = model.graph.node[0].attribute.add(name="type", type=onnx.AttributeProto.TYPE_PROTO)
    attribute.tp.tensor_type.elem_type = 999
    with pytest.raises(tx.InvalidModel, match='attribute "type" is of a type that ONNX does not define'):
        read(model, registry=Registry())
