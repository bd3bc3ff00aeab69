"""Files in inference mode, also from models exported in training mode."""

import io

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper
from test_old_files import MODES, START, ZEROS, W, dropping, nested, normalizing, written
from trained_models import X, contents

import tenonnx as tx
import tenonnx_training as tt
from tenonnx_cli import main


def exported(graph):
    stream = io.BytesIO()
    tx.export(graph, stream)
    onnx.checker.check_model(onnx.load_model_from_string(stream.getvalue()), full_check=True)
    return stream.getvalue()


def used(data, x):
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(data, options).run(None, {"x": x})[0]


@pytest.mark.parametrize(("opset", "training"), MODES)
def test_a_tuned_file_has_the_validation_result_in_onnxruntime(opset, training):
    graph = tx.load(normalizing(opset, training=training))
    history = tt.fit(
        graph, (X, ZEROS), loss="mean_squared_error", optimizer=tt.SGD(0.1), epochs=3, validation=(X, ZEROS)
    )
    data = exported(graph)
    whole = used(data, X)
    assert np.mean(whole**2) == pytest.approx(history.epochs[-1]["validation_loss"], rel=1e-4)
    np.testing.assert_allclose(np.concatenate([used(data, x[None]) for x in X]), whole, rtol=1e-5, atol=1e-6)


def test_dropout_is_off_unless_the_training_form_is_kept():
    for keep in (False, True):
        graph = tx.load(dropping(13, training=True))
        tt.fit(graph, (X, ZEROS), loss="mean_squared_error", keep_training_form=keep)
        assert len(graph.nodes[1].inputs) == (3 if keep else 2)
    graph = tx.load(dropping(13, training=True))
    step = tt.TrainingStep(graph, "mean_squared_error")
    step({"x": X, "labels": ZEROS})
    np.testing.assert_allclose(used(exported(step.write_back()), X), X @ contents(graph)["w"], rtol=1e-6)


@pytest.mark.parametrize("opset", [7, 15])
def test_a_file_in_evaluation_form_keeps_its_nodes(opset):
    model = normalizing(opset, training=False)
    result = onnx.load_model_from_string(exported(tt.evaluation_form(tx.load(model))))
    assert result.graph == model.graph
    model = dropping(13, training=True)
    model.graph.initializer[-1].CopyFrom(onnx.numpy_helper.from_array(np.bool_(False), "mode"))
    assert onnx.load_model_from_string(exported(tt.evaluation_form(tx.load(model)))).graph == model.graph


def test_the_graph_is_not_changed():
    graph = tx.load(normalizing(15, training=True))
    made = tt.evaluation_form(graph)
    assert [len(g.nodes[1].outputs) for g in (graph, made)] == [3, 1]
    assert [g.nodes[1].attributes.get("training_mode") for g in (graph, made)] == [1, None]


def test_running_statistics_of_a_file_are_used():
    model = normalizing(15, training=True)
    model.graph.output.append(helper.make_tensor_value_info("m", onnx.TensorProto.FLOAT, [3]))
    graph = tt.evaluation_form(tx.load(model))
    assert [value.name for value in graph.outputs] == ["y", "m"]
    assert graph.run({"x": X}, backend="numpy")["m"].tolist() == [START["mean"]] * 3
    exported(graph)


def test_a_mask_of_old_files_keeps_everything():
    node = helper.make_node("Dropout", ["h"], ["d", "mask"], ratio=0.5)
    model = written(node, 6, {"w": W})
    model.graph.node.append(helper.make_node("Mul", ["d", "mask"], ["y"]))
    graph = tt.evaluation_form(tx.load(model))
    np.testing.assert_allclose(graph.run({"x": X}, backend="numpy")["y"], X @ W)


def test_training_in_a_function_and_in_a_branch_ends():
    model = dropping(13, training=True)
    initializers = {tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
    graph = tt.evaluation_form(tx.load(nested(model.graph.node[1], 13, initializers)))
    np.testing.assert_allclose(used(exported(graph), X), X @ W)
    branch = helper.make_graph(
        [model.graph.node[1]], "branch", [], [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, None)]
    )
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.bool_(True), "chosen"))
    model.graph.node[1].CopyFrom(helper.make_node("If", ["chosen"], ["y"], then_branch=branch, else_branch=branch))
    graph = tt.evaluation_form(tx.load(model))
    np.testing.assert_allclose(graph.run({"x": X}, backend="numpy")["y"], X @ W)


@pytest.fixture
def files(tmp_path):
    onnx.save(normalizing(15, training=True), tmp_path / "model.onnx")
    np.savez(tmp_path / "data.npz", x=X, labels=ZEROS)
    return tmp_path


@pytest.mark.parametrize(("flags", "mode"), [([], 0), (["--keep-training-form"], 1)])
def test_the_command_line_writes_files_for_use(files, flags, mode):
    data, tuned = str(files / "data.npz"), str(files / "tuned.onnx")
    arguments = [str(files / "model.onnx"), "--data", data, "--loss", "mean_squared_error", "-o", tuned, *flags]
    assert main(["train", *arguments]) == 0
    node = onnx.load(tuned).graph.node[1]
    assert len(node.output) == (3 if mode else 1)
    assert [a.i for a in node.attribute if a.name == "training_mode"] == [1] * mode


def test_any_file_is_converted_for_use(files, capsys):
    assert main(["convert", str(files / "model.onnx"), "--for-inference", "-o", str(files / "used.onnx")]) == 0
    y = (X @ W - 0.5) / np.sqrt(2 + 1e-5)
    np.testing.assert_allclose(used((files / "used.onnx").read_bytes(), X), y, rtol=1e-5)
    assert main(["convert", "--help"]) == 0
    assert "--for-inference" in capsys.readouterr().out
