"""The IR version of a file matches its opset's ONNX release; features of newer ones are refused."""

import io
import json

import numpy as np
import onnx
import pytest
from models import EXAMPLES
from onnx import TensorProto, helper

import tenonnx as tx
from tenonnx_cli import main

EXPORTED = EXAMPLES / "exports/vit-dynamo.onnx"

#: The IR version of the ONNX release that introduced each opset.
PUBLISHED = {11: 6, 13: 7, 15: 8, 17: 8, 19: 9, 21: 10, 23: 11}


def written(source, **fields):
    stream = io.BytesIO()
    report = tx.export(source if isinstance(source, tx.Graph) else tx.load(source), stream, **fields)
    return onnx.ModelProto.FromString(stream.getvalue()), report


def noted():
    """A model of opset 23 and IR version 11 with every kind of metadata."""
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [2]) for name in ("x", "y"))
    inner = helper.make_tensor_value_info("r", TensorProto.FLOAT, [2])
    nodes = [helper.make_node("Relu", ["x"], ["r"], name="a"), helper.make_node("Abs", ["r"], ["y"], name="b")]
    graph = helper.make_graph(nodes, "noted", [x], [y], value_info=[inner])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)], ir_version=11)
    for message in (model, model.graph, *model.graph.node, model.graph.input[0], model.graph.value_info[0]):
        message.metadata_props.add(key="said", value="by an exporter")
    model.configuration.add(name="two", num_devices=2)
    model.graph.node[0].device_configurations.add(configuration_id="two")
    return model


def exported():
    """A model like those of torch.onnx, in which every node has metadata."""
    model = onnx.load(EXPORTED)
    for node in model.graph.node:
        node.metadata_props.add(key="pkg.torch.onnx.stack_trace", value="model.py:1")
    return model


def metadata(model):
    """Objects of the graph with metadata."""
    graph = model.graph
    return [each for each in (graph, *graph.node, *graph.input, *graph.value_info) if each.metadata_props]


@pytest.mark.parametrize("opset", [11, 13, 15, 17, 21])
def test_a_file_of_an_exporter_gets_the_ir_version_of_its_opset(opset):
    source = exported()
    assert source.ir_version == 10
    model, report = written(source, opset_version=opset)
    assert model.ir_version == report.ir_version == PUBLISHED[opset]
    assert bool(metadata(model)) is (opset >= 21)
    assert any("metadata of nodes" in what for what in report.left_out) is (opset < 21)
    onnx.checker.check_model(model)


def test_an_untouched_file_stays_as_it_is():
    for source in (noted(), exported()):
        model, report = written(source)
        assert model == source
        assert report.left_out == {}


@pytest.mark.parametrize(
    ("opset", "left_out"),
    [
        (23, {}),
        (21, {"device configurations of the model": 1, "device configurations of nodes": 1}),
        (
            17,
            {
                "device configurations of the model": 1,
                "device configurations of nodes": 1,
                "metadata of nodes": 2,
                "metadata of graphs": 1,
                "metadata of values": 2,
            },
        ),
    ],
)
def test_unsupported_metadata_is_dropped_and_counted(opset, left_out):
    model, report = written(noted(), opset_version=opset)
    assert report.left_out == left_out == report.to_dict()["left_out"]
    assert model.ir_version == PUBLISHED[opset]
    assert model.metadata_props[0].value == "by an exporter"
    assert all(about in report.summary() for about in left_out)


def test_a_requested_ir_version_takes_precedence_over_the_opset():
    for fields in ({}, {"opset_version": 17}, {"opset_version": 17, "tidy": True}):
        model, report = written(noted(), ir_version=9, **fields)
        assert model.ir_version == report.ir_version == 9
        assert not metadata(model)
        assert "metadata of nodes" in report.left_out
    assert written(noted(), ir_version=10, opset_version=13)[0].ir_version == 10
    assert metadata(written(noted(), ir_version=10, opset_version=13)[0])


def test_the_command_line_reports_dropped_metadata(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    onnx.save(noted(), "m.onnx")
    assert main(["convert", "m.onnx", "-o", "old.onnx", "--opset", "13"]) == 0
    output = capsys.readouterr().out
    assert "IR 7" in output
    assert "left out, as IR 7 does not support it: metadata of nodes (2)" in output
    assert main(["convert", "m.onnx", "-o", "old.onnx", "--opset", "13", "--ir-version", "10", "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["ir_version"] == 10
    assert "metadata of nodes" not in result["left_out"]
    assert main(["plan", "m.onnx", "--opset", "13", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["ir_version"] == 7


CALLS = """<ir_version: 10, opset_import: ["" : 17, "local" : 1]>
g (float[2] x) => (float[2] y) {{ y = local.f{overload} (x) }}
<domain: "local", opset_import: ["" : 17]> f{overload} (a) => (b) {{ b = Relu(a) }}
"""


def calling(overload):
    model = onnx.parser.parse_model(CALLS.format(overload=""))
    if overload:
        model.graph.node[0].overload = model.functions[0].overload = overload
    return model


def test_unsupported_features_are_refused_by_name():
    float8 = tx.Graph("codes", opsets={"ai.onnx": 21})
    x = float8.input("x", "float8e4m3fn", (2,))
    float8.output("y", x)
    for source, version, what in (
        (float8, 8, "the element type float8e4m3fn"),
        (calling("wide"), 9, "overloads of functions"),
        (calling(""), 7, "functions of the model"),
    ):
        with pytest.raises(tx.NotRepresentable, match="too old for") as caught:
            written(source, ir_version=version)
        assert what in str(caught.value)
    with pytest.raises(tx.NotRepresentable, match="IR version 99 is unknown"):
        written(noted(), ir_version=99)


@pytest.mark.parametrize("columns", [4, 1024])  # folded, and quantized values of 8 bits
def test_unused_quantized_values_need_no_version(columns):
    quantized = onnx.helper.make_tensor("codes", onnx.TensorProto.INT4, [64, columns], [3] * 64 * columns)
    scale = onnx.numpy_helper.from_array(np.full(columns, 0.5, np.float32), "scale")
    model = onnx.parser.parse_model(
        f"""<ir_version: 10, opset_import: ["" : 21]> g (float[n, 64] x) => (float[n, {columns}] y)
        {{ w = DequantizeLinear <axis = 1> (codes, scale)  y = MatMul (x, w) }}"""
    )
    model.graph.initializer.extend([quantized, scale])
    made, _ = written(model, opset_version=13)
    assert made.ir_version == 7
    assert "codes" not in {tensor.name for tensor in made.graph.initializer}
    x = np.ones((2, 64), np.float32)
    assert np.array_equal(tx.load(made).run({"x": x})["y"], np.full((2, columns), 96, np.float32))


def test_functions_keep_their_required_ir_version():
    assert written(calling(""), opset_version={"ai.onnx": 13}, functions="inline")[0].ir_version == 7
    model = calling("")
    model.opset_import[0].version = 13
    model.functions[0].opset_import[0].version = 13
    assert written(model)[0].ir_version == 10  # untouched
    session = np.float32([-1.0, 1.0])
    assert tx.load(written(calling(""), ir_version=8)[0]).run({"x": session})["y"].tolist() == [0.0, 1.0]
