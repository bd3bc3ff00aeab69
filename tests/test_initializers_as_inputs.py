"""Initializers listed as graph inputs: constants below IR version 4, default values since then."""

import io

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import tenonnx as tx
from tenonnx_cli import main
from tenonnx_quantized.tuning.quantize import quantize

RNG = np.random.default_rng(0)
WEIGHTS = {
    "w": RNG.standard_normal((32, 4, 3, 3), np.float32),
    **{name: RNG.standard_normal(32, np.float32) for name in ("scale", "bias", "mean")},
    "variance": np.abs(RNG.standard_normal(32, np.float32)) + 1,
}
X = RNG.standard_normal((2, 4, 5, 5), np.float32)
SIZE = sum(weight.nbytes for weight in WEIGHTS.values())


def info(name, shape):
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)


def model_of(ir_version, opset):
    """A convolution with BatchNormalization, whose weights are listed as inputs before the data."""
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["h"]),
        helper.make_node("BatchNormalization", ["h", "scale", "bias", "mean", "variance"], ["y"]),
    ]
    inputs = [*(info(name, weight.shape) for name, weight in WEIGHTS.items()), info("x", ["n", 4, 5, 5])]
    weights = [numpy_helper.from_array(weight, name) for name, weight in WEIGHTS.items()]
    graph = helper.make_graph(nodes, "g", inputs, [info("y", ["n", 32, 3, 3])], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=ir_version)


OLD, NEW = model_of(3, 8), model_of(7, 13)
EXPECTED = onnxruntime.InferenceSession(OLD.SerializeToString()).run(None, {"x": X})[0]


def converted(source, **options):
    stream = io.BytesIO()
    tx.convert(tx.load(source), stream, verify=True, **options)
    model = onnx.load_from_string(stream.getvalue())
    onnx.checker.check_model(model, full_check=True)
    got = onnxruntime.InferenceSession(stream.getvalue()).run(None, {"x": X})[0]
    np.testing.assert_allclose(got, EXPECTED, atol=0.05 if options.get("float16") else 1e-5)
    return model


def test_a_file_of_an_old_version_only_has_inputs_that_may_be_fed():
    assert [value.name for value in tx.load(OLD).all_inputs] == ["x"]
    assert [value.name for value in tx.load(NEW).all_inputs] == [*WEIGHTS, "x"]


def test_an_old_file_lists_the_inputs_in_their_order():
    assert tx.load(OLD).to_proto().SerializeToString() == OLD.SerializeToString()


def test_an_old_file_lists_new_initializers_last():
    graph = tx.load(OLD)
    graph.variable("further", np.float32([1]))
    listed = [each.name for each in graph.to_proto().graph.input]
    assert listed == [*WEIGHTS, "x", "further"]


def test_a_newer_version_does_not_list_them():
    assert [each.name for each in converted(OLD, opset_version=17).graph.input] == ["x"]


@pytest.mark.parametrize(("source", "options"), [(OLD, {}), (NEW, {"initializers_as_constants": True})], ids=["3", "7"])
def test_they_are_folded(source, options):
    model = converted(source, transforms=["simplify"], **options)
    assert [node.op_type for node in model.graph.node] == ["Conv"]
    assert SIZE * 0.9 < model.ByteSize() < SIZE * 1.1


@pytest.mark.parametrize("source", [OLD, NEW], ids=["3", "7"])
def test_they_are_written_in_half_precision(source):
    model = converted(source, float16=True)
    assert model.ByteSize() < SIZE * 0.6
    assert source is OLD or [each.name for each in model.graph.input] == ["x"]


def test_they_stay_defaults_in_half_precision_on_request():
    model = converted(NEW, float16=True, initializers_as_constants=False)
    assert [each.name for each in model.graph.input] == [*WEIGHTS, "x"]


def test_half_precision_reports_the_removed_inputs():
    report = tx.convert(NEW, io.BytesIO(), float16=True)
    assert [change.node for change in report.changes if change.action == "closed"] == list(WEIGHTS)


@pytest.mark.parametrize("mode", ["weights", "dynamic", "static"])
@pytest.mark.parametrize("source", [OLD, NEW], ids=["3", "7"])
def test_they_are_quantized(source, mode):
    made, report = quantize(tx.load(source), [{"x": X}], mode=mode)
    assert report.reached > 0.9
    assert [value.name for value in made.all_inputs] == ["x"]
    assert made.to_proto().ByteSize() < SIZE * 0.6


def test_a_default_is_not_quantized_on_request():
    with pytest.raises(tx.InvalidCall, match="no op can be quantized"):
        quantize(tx.load(NEW), [{"x": X}], mode="dynamic", initializers_as_constants=False)


def test_quantize_reports_the_removed_inputs(tmp_path, capsys):
    onnx.save(NEW, tmp_path / "m.onnx")
    assert main(["quantize", str(tmp_path / "m.onnx"), "-o", str(tmp_path / "q.onnx")]) == 0
    assert "5 graph inputs with a default value are constants now" in capsys.readouterr().err


def test_the_report_names_the_removed_inputs():
    report = tx.convert(NEW, io.BytesIO(), initializers_as_constants=True)
    assert [change.node for change in report.changes if change.action == "closed"] == list(WEIGHTS)


def test_a_default_stays_one_otherwise():
    model = converted(NEW, transforms=["simplify"])
    assert [each.name for each in model.graph.input] == [*WEIGHTS, "x"]


def test_without_such_inputs_nothing_changes():
    graph = tx.load(converted(OLD, opset_version=17))
    stream = io.BytesIO()
    report = tx.convert(graph, stream, initializers_as_constants=True)
    assert not any(change.action == "closed" for change in report.changes)
