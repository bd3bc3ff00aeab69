"""A native file restores the same graph, and everything in it is validated."""

import base64
import json
import struct

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from tenonnx.errors import InvalidCall, InvalidModel, NotRepresentable
from tenonnx.formats import native, safetensors
from tenonnx.formats.onnx.messages import save
from tenonnx.formats.onnx.writer import to_model
from tenonnx.graph.dtypes import DType
from tenonnx.loading import load
from tenonnx.registry.registry import Registry
from tenonnx_convert.convert import export

REGISTRY = Registry()
NUMERIC = [d for d in DType if d not in (DType.undefined, DType.string)]


def model_of(*tensors, **fields):
    """A model whose node reads every tensor and has an unknown op."""
    names = [t.name for t in tensors]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n"])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n"])
    graph = helper.make_graph(
        [helper.make_node("Use", ["x", *names], ["y"], "use", domain="acme")], "g", [x], [y], tensors
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("acme", 1)], ir_version=13, **fields)


def raw(name, array):
    return numpy_helper.from_array(np.asarray(array), name)


def round_trip(model, tmp_path, base_dir=None):
    graph = load(model, base_dir=base_dir, registry=REGISTRY)
    save(graph, tmp_path / "m.safetensors")
    return graph, load(tmp_path / "m.safetensors", registry=REGISTRY)


def numbers(dtype, count=6):
    if dtype is DType.float8e8m0:
        return np.array([0.5, 1, 2, 4, 8, 16], np.float32)[:count].astype(dtype.numpy)
    return np.arange(count).astype(np.float32).astype(dtype.numpy)


@pytest.mark.parametrize("dtype", NUMERIC, ids=str)
def test_every_element_type_is_restored(dtype, tmp_path):
    tensor = raw("w", numbers(dtype).reshape(2, 3))
    assert tensor.data_type == dtype
    model = model_of(tensor)
    _, back = round_trip(model, tmp_path)
    assert to_model(back) == model
    array = back.variables[0].data.array()
    assert array.dtype == dtype.numpy
    assert not array.flags.writeable
    assert (array == numbers(dtype).reshape(2, 3)).all()


@pytest.mark.parametrize("dtype", NUMERIC, ids=str)
def test_the_field_of_the_contents_is_restored(dtype, tmp_path):
    array = numbers(dtype)
    tensor = helper.make_tensor("w", int(dtype), [2, 3], array, raw=False)
    assert not tensor.HasField("raw_data")
    model = model_of(tensor)
    _, back = round_trip(model, tmp_path)
    assert to_model(back) == model


def test_every_field_of_a_message_is_restored(tmp_path):
    documented = raw("documented", np.ones(3, np.float32))
    documented.doc_string = "what it is for"
    documented.metadata_props.add(key="origin", value="layer 1")
    words = helper.make_tensor("words", TensorProto.STRING, [2], [b"tenon", "Ä".encode()])
    empty = TensorProto(name="empty", data_type=TensorProto.FLOAT, dims=[0, 3])
    scalar = raw("scalar", np.float64(0.1))
    model = model_of(
        words, documented, raw("__metadata__", np.zeros(2)), raw("__metadata___", np.ones(2)), empty, scalar
    )
    model.doc_string, model.producer_name = "a model", "tests"
    model.metadata_props.add(key="license", value="none")
    model.graph.doc_string = "a graph"
    model.graph.value_info.append(helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n"]))
    sparse = model.graph.sparse_initializer.add(dims=[8])
    sparse.values.CopyFrom(raw("sparse", np.ones(2, np.float32)))
    sparse.indices.CopyFrom(raw("", np.array([1, 5])))
    graph, back = round_trip(model, tmp_path)
    assert to_model(back) == to_model(graph) == model
    assert [v.name for v in back.variables] == [v.name for v in graph.variables]
    assert set(safetensors.read_tensors(tmp_path / "m.safetensors")[0]) == {
        "documented",
        "__metadata___",
        "__metadata____",
        "empty",
        "scalar",
    }


def test_external_tensors_become_part_of_the_file(tmp_path):
    inner = helper.make_graph(
        [helper.make_node("Use", ["v"], ["z"], domain="acme")],
        "inner",
        [],
        [helper.make_tensor_value_info("z", TensorProto.FLOAT, [3])],
        [raw("v", np.full(3, 7, np.float32))],
    )
    model = model_of(raw("w", np.arange(600, dtype=np.float32)))
    model.graph.node[0].attribute.append(helper.make_attribute("body", inner))
    onnx.save(model, tmp_path / "m.onnx", save_as_external_data=True, size_threshold=0, location="m.data")
    graph = load(tmp_path / "m.onnx", registry=REGISTRY)
    save(graph, tmp_path / "m.safetensors")
    (tmp_path / "m.data").unlink()
    back = load(tmp_path / "m.safetensors", registry=REGISTRY)
    assert (back.variables[0].data.array() == np.arange(600)).all()
    inside = back.nodes[0].subgraphs[0].variables[0].data.array()
    assert (inside == 7).all()
    export(back, tmp_path / "again.onnx")
    assert (onnx.load(tmp_path / "again.onnx").graph.initializer[0].raw_data) == np.arange(600, dtype="<f4").tobytes()


def test_a_handmade_graph_and_the_public_names(tmp_path):
    import tenonnx

    graph = tenonnx.Graph("made", opsets={"tiny": 4})
    graph.variable("w", np.ones((2, 2), ml_dtypes.bfloat16))
    graph.variable("nibbles", np.array([1, -2, 3], ml_dtypes.int4))
    graph.variable("names", np.array(["a", "b"], dtype=object))
    graph.outputs.append(graph.input("x", "float32", ("n",)))
    graph.save(tmp_path / "made.SAFETENSORS")
    back = tenonnx.load(tmp_path / "made.SAFETENSORS", registry=REGISTRY)
    assert to_model(back) == to_model(graph)
    assert list(back.variables[2].data.array()) == ["a", "b"]


def test_the_safetensors_package_reads_it(tmp_path):
    package = pytest.importorskip("safetensors")
    weights = {"half": np.ones(3, np.float16), "bytes": np.ones(5, np.uint8), "w": np.arange(6.0).reshape(2, 3)}
    native.write(
        load(model_of(*(raw(n, a) for n, a in weights.items())), registry=REGISTRY), tmp_path / "m.safetensors"
    )
    with package.safe_open(tmp_path / "m.safetensors", "np") as file:
        assert file.metadata()["format"] == "tenonnx"
        assert all((file.get_tensor(name) == array).all() for name, array in weights.items())
    header = header_of(tmp_path / "m.safetensors")
    assert all(entry["data_offsets"][0] % 8 == 0 for name, entry in header.items() if name == "w")


def test_a_file_can_overwrite_its_source(tmp_path):
    graph, back = round_trip(model_of(raw("w", np.arange(9.0))), tmp_path)
    save(back, tmp_path / "m.safetensors")
    again = load(tmp_path / "m.safetensors", registry=REGISTRY)
    assert to_model(again) == to_model(back) == to_model(graph)
    assert [path.name for path in tmp_path.iterdir()] == ["m.safetensors"]


def test_a_graph_that_is_too_large_for_a_header_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(safetensors, "LARGEST_HEADER", 100)
    with pytest.raises(NotRepresentable, match="header"):
        save(load(model_of(), registry=REGISTRY), tmp_path / "m.safetensors")
    assert not list(tmp_path.iterdir())


# ----- bad files --------------------------------------------------------------------------------------------------


def header_of(path):
    data = path.read_bytes()
    return json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])


@pytest.fixture
def good(tmp_path):
    round_trip(model_of(raw("w", np.arange(4.0)), raw("b", np.ones(2, np.float32))), tmp_path)
    return tmp_path / "m.safetensors"


def rewritten(path, edit, tail=b""):
    """Rewrite the file with its header changed by ``edit``."""
    data = path.read_bytes()
    length = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + length])
    encoded = json.dumps(edit(header) or header).encode()
    path.write_bytes(struct.pack("<Q", len(encoded)) + encoded + data[8 + length :] + tail)
    return path


def set_entry(name, **fields):
    return lambda header: header[name].update(fields)


def set_message(change):
    def edit(header):
        model = onnx.ModelProto.FromString(base64.b64decode(header["__metadata__"]["tenonnx.graph"]))
        change(model)
        header["__metadata__"]["tenonnx.graph"] = base64.b64encode(model.SerializeToString()).decode()

    return edit


def forget(header):
    del header["__metadata__"]["tenonnx.graph"]


EDITS = {
    "gap": set_entry("b", data_offsets=[33, 41]),
    "overlap": set_entry("b", data_offsets=[24, 32]),
    "past the end": set_entry("b", data_offsets=[32, 1 << 40]),
    "negative": set_entry("b", data_offsets=[-8, 0]),
    "backwards": set_entry("b", data_offsets=[40, 32]),
    "no integer": set_entry("b", data_offsets=[32.0, 40.0]),
    "truth value": set_entry("b", shape=[True, 2]),
    "three offsets": set_entry("b", data_offsets=[32, 40, 48]),
    "wrong shape": set_entry("b", shape=[3]),
    "overflow": set_entry("b", shape=[1 << 62, 1 << 62]),
    "unknown dtype": set_entry("b", dtype="F7"),
    "dtype of another kind": set_entry("b", dtype=[1]),
    "another dtype": set_entry("b", dtype="I32"),
    "another shape": set_entry("b", shape=[2, 1]),
    "further field": set_entry("b", extra=1),
    "entry": lambda header: header.update(b=7),
    "header": lambda header: [header],
    "metadata": lambda header: header.update(__metadata__={"a": 1}),
    "no graph": forget,
    "no base64": lambda header: header["__metadata__"].update({"tenonnx.graph": "!"}),
    "no message": lambda header: header["__metadata__"].update({"tenonnx.graph": "AAAA"}),
    "missing tensor": set_message(lambda model: model.graph.initializer.add(name="c", data_type=1, dims=[2])),
    "unused tensor": set_message(lambda model: model.graph.initializer.pop()),
    "huge dims": set_message(lambda model: model.graph.initializer[0].dims.extend([1 << 40, 1 << 40])),
    "strange field": set_message(lambda model: model.graph.initializer[0].external_data.add(key="field", value="name")),
    "narrow field": set_message(
        lambda model: model.graph.initializer[0].external_data.add(key="field", value="string_data")
    ),
    "external tensor": set_message(
        lambda model: model.graph.initializer[0].external_data.add(key="tensor", value="/etc/passwd")
    ),
}


@pytest.mark.parametrize("edit", EDITS.values(), ids=EDITS)
def test_an_inconsistent_file_is_refused(good, edit):
    with pytest.raises(InvalidModel):
        load(rewritten(good, edit), registry=REGISTRY)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"abc",
        struct.pack("<Q", 1 << 60),
        struct.pack("<Q", 4) + b"{}",
        struct.pack("<Q", 2) + b"\xff\xfe",
        struct.pack("<Q", 2) + b"[]",
        struct.pack("<Q", 200_000) + b"[" * 200_000,
        struct.pack("<Q", 6) + b'{"a":1',
        struct.pack("<Q", 22) + b'{"a": 1, "a": 2}      ',
        struct.pack("<Q", 5_010) + b'{"a": ' + b"9" * 5_003 + b"}",
    ],
)
def test_other_bytes_are_refused(data, tmp_path):
    (tmp_path / "m.safetensors").write_bytes(data)
    with pytest.raises(InvalidModel, match="is not a safetensors file"):
        load(tmp_path / "m.safetensors", registry=REGISTRY)


def test_truncated_and_prolonged_files_are_refused(good):
    data = good.read_bytes()
    for length in range(0, len(data), 7):
        good.write_bytes(data[:length])
        with pytest.raises(InvalidModel):
            load(good, registry=REGISTRY)
    good.write_bytes(data + b"\0")
    with pytest.raises(InvalidModel, match="belong to no tensor"):
        load(good, registry=REGISTRY)


def test_a_path_that_is_not_a_file_is_refused(tmp_path):
    for path in (tmp_path / "none.safetensors", tmp_path):
        with pytest.raises(InvalidCall, match="cannot read"):
            native.read(path)
