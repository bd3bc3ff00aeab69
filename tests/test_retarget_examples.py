"""Every example retargeted to every opset and to plain ai.onnx: valid, with equal outputs in onnxruntime."""

import io

import numpy as np
import onnx
import onnxruntime
import pytest
from models import SAMPLES, example, feeds

import tenonnx as tx
from tenonnx_onnx_ml.maps import without_zip_map
from tenonnx_run.compare import compare

OPSETS = (9, 11, 13, 15, 17, 18, 21, 25)

#: Examples written verbatim at their own opset, which the checker already rejected before.
AS_IT_WAS = {("decoder/decoder", 21)}


def run(model, arrays):
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return session.run(None, arrays)


def exported(graph, **target):
    stream = io.BytesIO()
    report = tx.export(graph, stream, **target)
    return onnx.ModelProto.FromString(stream.getvalue()), report


@pytest.mark.parametrize("opset", OPSETS)
@pytest.mark.parametrize("name", SAMPLES)
@pytest.mark.parametrize("plain", [False, True], ids=["all", "ai.onnx"])
def test_examples_move_to_any_opset(name, opset, plain):
    graph = tx.load(example(name))
    domains = ["ai.onnx"] if plain else None
    zip_maps = [n for n in graph.nodes if n.op_type == "ZipMap"]
    if plain and zip_maps:
        with pytest.raises(tx.NotRepresentable, match="1 node cannot be expressed") as caught:
            exported(graph, opset_version=opset, domains=domains)
        assert "ZipMap" in str(caught.value)
        graph = without_zip_map(graph)
    model, _ = exported(graph, opset_version=opset, domains=domains)
    assert {o.domain: o.version for o in model.opset_import}.get("", opset) == opset
    if plain:
        assert all(node.domain == "" for node in model.graph.node)
    if (name, opset) not in AS_IT_WAS:
        onnx.checker.check_model(model, full_check=True)
    expected = run(onnx.load(example(name)), feeds(name))
    for value, actual, wanted in zip(model.graph.output, run(model, feeds(name)), expected, strict=True):
        if plain and isinstance(wanted, list):  # output of ZipMap
            wanted = np.float32([list(each.values()) for each in wanted])
        difference = compare(actual, wanted, accumulation=1024)
        assert difference.equal, f"{value.name}: {difference}"


def test_softmax_off_the_last_axis_is_right_below_13():
    graph = tx.Graph(opsets={"ai.onnx": 13})
    from tenonnx_standard.axis_activation import softmax

    graph.output("y", softmax(graph.input("x", "float32", (2, 3, 4)), axis=1))
    x = np.random.default_rng(0).normal(size=(2, 3, 4)).astype(np.float32)
    expected = np.exp(x) / np.exp(x).sum(1, keepdims=True)
    for opset in (12, 11, 9, 7):
        model, report = exported(graph, opset_version=opset)
        np.testing.assert_allclose(run(model, {"x": x})[0], expected, rtol=1e-5)
        assert report.rewritten


def test_softmax_on_the_last_axis_stays_one_node():
    from tenonnx_standard.axis_activation import softmax

    graph = tx.Graph(opsets={"ai.onnx": 13})
    graph.output("y", softmax(graph.input("x", "float32", ("n", 4))))
    model, report = exported(graph, opset_version=12)
    assert [node.op_type for node in model.graph.node] == ["Softmax"]
    assert report.changes[0].action == "lowered"
