"""Training state in files."""

import io

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import tenonnx as tx
from tenonnx.errors import InvalidCall, InvalidModel
from tenonnx.formats.onnx.training import KEY
from tenonnx.graph.constants import ArrayConstant
from tenonnx.graph.training import TrainingState

MOMENT = np.float32([1, 2])


def model(ir_version=8):
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [2]) for name in "xy")
    w = numpy_helper.from_array(np.float32([3, 4]), "w")
    inputs = [x] if ir_version > 3 else [x, helper.make_tensor_value_info("w", TensorProto.FLOAT, [2])]
    graph = helper.make_graph([helper.make_node("Add", ["x", "w"], ["y"])], "g", inputs, [y], [w])
    return helper.make_model(graph, ir_version=ir_version, opset_imports=[helper.make_opsetid("", 8)])


def trained(ir_version=8):
    graph = tx.load(model(ir_version))
    graph.training_state = TrainingState({"w__adam_m": ArrayConstant(MOMENT)}, {"optimizer": {"name": "adam"}})
    return graph


def written(graph, **options):
    stream = io.BytesIO()
    tx.export(graph, stream, **options)
    return onnx.ModelProto.FromString(stream.getvalue())


@pytest.mark.parametrize("ir_version", [3, 8])
@pytest.mark.parametrize("opset", [None, 13])
def test_state_is_written_on_request_and_read_back(ir_version, opset):
    saved = written(trained(ir_version), include_training_state=True, opset_version=opset)
    onnx.checker.check_model(saved, full_check=True)
    assert [t.name for t in saved.graph.initializer] == ["w", "w__adam_m"]
    graph = tx.load(saved)
    assert [v.name for v in graph.variables] == ["w"]
    assert [v.name for v in graph.inputs] == ["x"]
    assert not graph.metadata
    assert graph.training_state.settings == {"optimizer": {"name": "adam"}}
    np.testing.assert_array_equal(graph.training_state.tensors["w__adam_m"].array(), MOMENT)


def test_without_the_flag_the_file_is_the_original():
    assert written(trained()) == model()


def test_a_native_file_has_it_always(tmp_path):
    path = tmp_path / "checkpoint.safetensors"
    trained().save(path)
    state = tx.load(path).training_state
    np.testing.assert_array_equal(state.tensors["w__adam_m"].array(), MOMENT)
    assert state.settings["optimizer"]["name"] == "adam"


def test_state_cannot_take_the_name_of_a_value():
    graph = trained()
    graph.training_state = TrainingState({"y": ArrayConstant(MOMENT)})
    with pytest.raises(InvalidCall, match="names of the training state are used"):
        written(graph, include_training_state=True)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{}",
        "[1]",
        '{"tensors": 3, "settings": {}}',
        '{"tensors": ["gone"], "settings": {}}',
        '{"tensors": [[1]], "settings": {}}',
        '{"tensors": [], "settings": 3}',
        "[" * 100_000,
    ],
)
def test_a_wrong_announcement_is_refused(text):
    wrong = model()
    wrong.metadata_props.add(key=KEY, value=text)
    with pytest.raises(InvalidModel, match="training"):
        tx.load(wrong)
