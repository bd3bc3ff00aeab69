"""Attribute tensors with external data."""

import io

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import tenonnx as tx
from tenonnx.errors import InvalidModel, UnsafePath

W = np.arange(16, dtype=np.float32).reshape(4, 4)
X = np.arange(4, dtype=np.float32).reshape(1, 4)
F = {name: helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", 4]) for name in "xy"}


def constant(name, attribute="value"):
    given = numpy_helper.from_array(W, name)
    if attribute == "sparse_value":
        values = numpy_helper.from_array(W.reshape(-1)[1:], f"{name}_values")
        given = helper.make_sparse_tensor(values, numpy_helper.from_array(np.arange(1, 16), f"{name}_at"), [4, 4])
    return helper.make_node("Constant", [], [name], **{attribute: given})


def at_top():
    return [constant("w"), helper.make_node("MatMul", ["x", "w"], ["y"])], []


def sparse():
    return [constant("w", "sparse_value"), helper.make_node("MatMul", ["x", "w"], ["y"])], []


def in_a_branch():
    def branch(name, op):
        nodes = [constant(f"w{name}"), helper.make_node(op, ["x", f"w{name}"], [name])]
        return helper.make_graph(nodes, name, [], [helper.make_tensor_value_info(name, TensorProto.FLOAT, None)])

    truth = helper.make_node("Constant", [], ["c"], value=numpy_helper.from_array(np.array(True)))
    return [
        truth,
        helper.make_node("If", ["c"], ["y"], then_branch=branch("t", "MatMul"), else_branch=branch("e", "Add")),
    ], []


def as_initializer_of_a_branch():
    nodes, _ = in_a_branch()
    for attribute in nodes[1].attribute:
        attribute.g.initializer.append(numpy_helper.from_array(W, attribute.g.node[0].output[0]))
        del attribute.g.node[0]
    return nodes, []


def in_a_function():
    opset = [helper.make_opsetid("", 17)]
    nodes, _ = in_a_branch()
    body = [*nodes[:1], nodes[1], constant("k"), helper.make_node("Add", ["y", "k"], ["z"])]
    function = helper.make_function("local", "Layer", ["x"], ["z"], body, opset)
    return [helper.make_node("Layer", ["x"], ["y"], domain="local")], [function]


def tensors_of(nodes):
    for node in nodes:
        for attribute in node.attribute:
            yield from (each for each in (attribute.t, *attribute.tensors) if each.dims)
            if attribute.HasField("sparse_tensor"):
                yield from (attribute.sparse_tensor.values, attribute.sparse_tensor.indices)
            yield from attribute.g.initializer
            yield from tensors_of(attribute.g.node)


@pytest.fixture(params=[at_top, sparse, in_a_branch, as_initializer_of_a_branch, in_a_function])
def stored(request, tmp_path):
    """A file with its attribute tensors in the external file ``data``, and the outputs of the same model without it."""
    nodes, functions = request.param()
    graph = helper.make_graph(nodes, "g", [F["x"]], [F["y"]])
    imports = [helper.make_opsetid("", 17), *([helper.make_opsetid("local", 1)] if functions else [])]
    model = helper.make_model(graph, opset_imports=imports, functions=functions, ir_version=8)
    expected = tx.load(model).run({"x": X}, backend="numpy")["y"]
    held = bytearray(5)
    for tensor in tensors_of([*model.graph.node, *(node for each in model.functions for node in each.node)]):
        entries = {"location": "data", "offset": len(held), "length": len(tensor.raw_data)}
        held += tensor.raw_data
        tensor.ClearField("raw_data")
        tensor.data_location = TensorProto.EXTERNAL
        for key, value in entries.items():
            tensor.external_data.add(key=key, value=str(value))
    assert len(held) > 5
    (tmp_path / "data").write_bytes(held)
    (tmp_path / "m.onnx").write_bytes(model.SerializeToString())
    return tmp_path, expected


def test_the_contents_are_those_of_the_file(stored):
    folder, expected = stored
    np.testing.assert_array_equal(tx.load(folder / "m.onnx").run({"x": X}, backend="numpy")["y"], expected)


@pytest.mark.parametrize("options", [{}, {"opset_version": 21}], ids=["as read", "opset 21"])
def test_the_exported_file_needs_no_other_file(stored, options):
    folder, expected = stored
    stream = io.BytesIO()
    tx.export(tx.load(folder / "m.onnx"), stream, **options)
    onnx.checker.check_model(onnx.load_from_string(stream.getvalue()), full_check=True)
    assert b"location" not in stream.getvalue()
    np.testing.assert_array_equal(tx.load(stream.getvalue()).run({"x": X}, backend="numpy")["y"], expected)


def test_a_message_with_its_folder_stays_as_it_is(stored):
    folder, expected = stored
    model = onnx.load(folder / "m.onnx", load_external_data=False)
    before = model.SerializeToString(deterministic=True)
    graph = tx.load(model, base_dir=folder)
    np.testing.assert_array_equal(graph.run({"x": X}, backend="numpy")["y"], expected)
    assert model.SerializeToString(deterministic=True) == before


def test_a_message_without_a_folder_is_refused(stored):
    model = onnx.load(stored[0] / "m.onnx", load_external_data=False)
    with pytest.raises(InvalidModel, match="without the folder of its data files"):
        tx.load(model)


def test_a_location_outside_of_the_folder_is_refused(stored):
    folder, _ = stored
    data = (folder / "m.onnx").read_bytes().replace(b"\x04data", b"\x04../d")
    (folder / "m.onnx").write_bytes(data)
    with pytest.raises(UnsafePath):
        tx.load(folder / "m.onnx")


def test_a_file_that_is_too_short_is_refused(stored):
    folder, _ = stored
    (folder / "data").write_bytes(b"\0" * 20)
    with pytest.raises(InvalidModel, match="external data lies beyond the end of its file"):
        tx.load(folder / "m.onnx")
