"""``graph.save``: an ONNX file by the writer of ``tenonnx.export``, or a native file."""

import numpy as np
import onnx
import pytest
import tiny

import tenonnx as tx

UNKNOWN = """
<ir_version: 8, opset_import: ["": 17, "com.nobody": 3], doc_string: "kept">
g (float[n, 2] x) => (float[n, 2] y) <float[2] w = {1.0, 2.0}>
{ [first] a = com.nobody.Mystery<factor = 2.0>(x, w)  b = Relu(a)  y = com.nobody.Other(b) }
"""


def model():
    made = onnx.parser.parse_model(UNKNOWN)
    made.metadata_props.add(key="who", value="me")
    return made


def built():
    graph = tx.Graph(opsets={"tiny": 5})
    graph.registry = tiny.registry()
    w = graph.variable("w", np.array([10], np.float32))
    graph.output("y", tiny.affine(graph.input("x", "float32", ("n",)), w))
    return graph


@pytest.mark.parametrize("make", [lambda: tx.load(model(), registry=tx.Registry()), built])
@pytest.mark.parametrize("edited", [False, True])
def test_a_saved_graph_has_the_bytes_of_an_export(tmp_path, make, edited):
    graph = make()
    if edited:
        graph.rename("x", "input")
        graph.nodes[0].name = "renamed"
    graph.save(tmp_path / "saved.onnx")
    tx.export(graph, tmp_path / "exported.onnx")
    assert (tmp_path / "saved.onnx").read_bytes() == (tmp_path / "exported.onnx").read_bytes()


def test_external_data_is_next_to_the_file(tmp_path):
    source = model()
    source.graph.initializer[0].CopyFrom(onnx.numpy_helper.from_array(np.float32([1, 2]), "w"))
    onnx.save(source, tmp_path / "m.onnx", save_as_external_data=True, size_threshold=0, location="m.data")
    graph = tx.load(tmp_path / "m.onnx", registry=tx.Registry())
    for name, write in {"a": graph.save, "b": lambda path: tx.export(graph, path)}.items():
        (tmp_path / name).mkdir()
        write(tmp_path / name / "n.onnx")
    saved, exported = ({p.name: p.read_bytes() for p in (tmp_path / name).iterdir()} for name in "ab")
    assert saved == exported
    assert len(saved) == 2


def test_opaque_nodes_are_edited_and_saved(tmp_path):
    graph = tx.load(model(), registry=tx.Registry())
    assert "Mystery" in graph.summary()
    graph.rename("a", "inner")
    graph.find("w").data = np.float32([3, 4])
    graph.save(tmp_path / "m.onnx")
    result = onnx.load(tmp_path / "m.onnx")
    assert [node.op_type for node in result.graph.node] == ["Mystery", "Relu", "Other"]
    assert result.graph.node[0].output == ["inner"]
    assert onnx.numpy_helper.to_array(result.graph.initializer[0]).tolist() == [3, 4]
    assert (result.doc_string, result.metadata_props[0].value) == ("kept", "me")


def test_a_file_that_cannot_be_written_leaves_nothing(tmp_path):
    graph = built()
    (tmp_path / "m.onnx").write_bytes(b"old")
    (tmp_path / "m.onnx").chmod(0o400)
    with pytest.raises(tx.InvalidCall):
        graph.save(tmp_path / "m.onnx")
    assert (tmp_path / "m.onnx").read_bytes() == b"old"
    graph.save(tmp_path / "m.onnx", overwrite=True)
    assert onnx.load(tmp_path / "m.onnx").graph.output[0].name == "y"
    with pytest.raises(tx.TenonnxError):
        graph.save(tmp_path / "no" / "folder" / "m.onnx")
