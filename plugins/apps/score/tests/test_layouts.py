"""``tenonnx convert --layout``: folder layouts of model servers."""

import json
from pathlib import Path

import numpy as np
import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, text_format

import tenonnx as tx
import tenonnx_standard as ops
from tenonnx_cli import REFUSED, main
from tenonnx_score.layouts.interface import interface_of
from tenonnx_score.layouts.triton import TYPES, config


def test_a_folder_of_triton(matrix, tmp_path, capsys):
    net = tmp_path / "repository" / "net"
    assert main(["convert", matrix, "-o", str(net), "--layout", "triton"]) == 0
    assert (net / "config.pbtxt").read_text() == (
        'name: "net"\n'
        'backend: "onnxruntime"\n'
        "max_batch_size: 64\n"
        'input {\n  name: "x"\n  data_type: TYPE_FP32\n  dims: [ 4 ]\n}\n'
        'output {\n  name: "p"\n  data_type: TYPE_FP32\n  dims: [ 3 ]\n}\n'
        'output {\n  name: "label"\n  data_type: TYPE_INT64\n  dims: [ 1 ]\n  reshape: { shape: [ ] }\n}\n'
        "dynamic_batching { }\n"
    )
    rows = np.ones((2, 4), np.float32)
    assert np.array_equal(
        tx.load(net / "1" / "model.onnx").run({"x": rows})["p"], tx.load(matrix).run({"x": rows})["p"]
    )


def test_unbatched_models_and_names_beyond_ascii():
    graph = tx.Graph(opsets={"ai.onnx": 17})
    x = graph.input('x"\u00e9', "float16", (2, "width"))
    graph.output("y", ops.identity(x))
    text = config("net", interface_of(graph))
    assert "max_batch_size: 0\n" in text
    assert "dynamic_batching" not in text
    assert 'name: "x\\042\\303\\251"' in text
    assert "data_type: TYPE_FP16\n  dims: [ 2, -1 ]" in text


def test_a_folder_of_kserve(matrix, tmp_path):
    assert main(["convert", matrix, "-o", str(tmp_path / "net"), "--layout", "kserve"]) == 0
    service = (tmp_path / "net" / "inference-service.yaml").read_text()
    assert "kind: InferenceService" in service
    assert '      storageUri: "pvc://net/models"\n' in service
    assert (tmp_path / "net" / "models" / "net" / "1" / "model.onnx").exists()
    assert (tmp_path / "net" / "models" / "net" / "config.pbtxt").exists()


@pytest.mark.parametrize(
    ("output", "layout", "said"),
    [
        ("net", "heroku", "unknown layout"),
        ("net.onnx", "triton", "the output of a layout is not a folder"),
        ("Net_1", "kserve", "is not valid as the name of a Kubernetes service"),
    ],
)
def test_errors_are_reported_and_nothing_is_written(output, layout, said, matrix, tmp_path, capsys):
    assert main(["convert", matrix, "-o", str(tmp_path / output), "--layout", layout]) == REFUSED
    assert said in capsys.readouterr().err
    assert not (tmp_path / output).exists()


def test_types_that_a_server_cannot_describe_are_refused_by_name():
    graph = tx.Graph(opsets={"ai.onnx": 17})
    graph.output("y", ops.sequence_construct(graph.input("x", "float32", ("rows",))))
    with pytest.raises(tx.NotRepresentable, match='output "y" is not a tensor'):
        interface_of(graph)


# ----- the servers' own schemas ---------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def model_config():
    """Triton's message ``ModelConfig``, built of the facts in ``data/triton.json``."""
    facts = json.loads((Path(__file__).parent / "data" / "triton.json").read_text())
    file = descriptor_pb2.FileDescriptorProto(name="model_config.proto", package="inference", syntax="proto3")
    for name, values in facts["enums"].items():
        owner, _, inner = name.rpartition(".")
        enum = (_message(file, owner).enum_type if owner else file.enum_type).add(name=inner)
        for value, number in values.items():
            enum.value.add(name=value, number=number)
    for name, fields in facts["messages"].items():
        for field, (number, kind, label, *of) in fields.items():
            if of and of[0] not in facts["messages"] and of[0] not in facts["enums"]:
                continue  # a message that the layout does not use
            added = _message(file, name).field.add(name=field, number=number)
            added.type = getattr(added, f"TYPE_{kind.upper()}")
            added.label = added.LABEL_REPEATED if label == "repeated" else added.LABEL_OPTIONAL
            if of:
                added.type_name = f".inference.{of[0]}"
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("inference.ModelConfig"))


def _message(file, name):
    return next((each for each in file.message_type if each.name == name), None) or file.message_type.add(name=name)


@pytest.mark.parametrize("dtype", [dtype for dtype in TYPES if dtype != "bfloat16"])
@pytest.mark.parametrize("shape", [("rows", 4), ("rows",), (2, "width"), (), ("rows", "a", "b", 3)])
def test_configurations_are_messages_of_triton(dtype, shape, model_config):
    graph = tx.Graph(opsets={"ai.onnx": 17})
    graph.output("y\n\"'\\é", ops.identity(graph.input("x", dtype, shape)))
    read = text_format.Parse(config("net é", interface_of(graph)), model_config())
    assert (read.name, read.backend) == ("net é", "onnxruntime")
    batched = bool(shape) and isinstance(shape[0], str)
    dims = [dim if isinstance(dim, int) else -1 for dim in shape[batched:]]
    assert (read.max_batch_size > 0) == read.HasField("dynamic_batching") == batched
    for tensor, name in ((read.input[0], "x"), (read.output[0], "y\n\"'\\é")):
        assert tensor.name == name
        kind = tensor.DESCRIPTOR.fields_by_name["data_type"].enum_type.values_by_number[tensor.data_type].name
        assert kind == TYPES[dtype]
        assert list(tensor.dims) == (dims or [1]), "the server refuses tensors without dims"
        assert tensor.HasField("reshape") == (not dims)
        assert not tensor.reshape.shape


def test_all_element_types_are_those_of_triton(model_config):
    known = model_config.DESCRIPTOR.file.enum_types_by_name["DataType"].values_by_name
    assert set(TYPES.values()) == set(known) - {"TYPE_INVALID"}


def test_unknown_triton_fields_are_found(model_config):
    with pytest.raises(text_format.ParseError, match="batch_sizes"):
        text_format.Parse("batch_sizes: 3", model_config())
