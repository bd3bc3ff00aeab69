"""Training state in files: under names derived from their variable, left out on request, and never trained."""

import io
import json
import re

import numpy as np
import onnx
import pytest
from trained_models import X, Y, contents, linear

import tenonnx as tx
import tenonnx_training as tt
from tenonnx.errors import InvalidCall
from tenonnx_cli import main

OPTIMIZERS = ["momentum", "adagrad", "adam", "adamw", "rmsprop", "lion", "lamb"]


def trained(optimizer="adam", steps=2, **options):
    graph = linear()
    step = tt.TrainingStep(graph, "mean_squared_error", optimizer, **options)
    for _ in range(steps):
        step({"x": X, "labels": Y})
    return step.write_back()


def message(graph):
    stream = io.BytesIO()
    tx.export(graph, stream, include_training_state=True)
    return onnx.ModelProto.FromString(stream.getvalue())


def without_metadata(graph):
    """Graph in the state in which a program leaves it that copies initializers and drops our metadata."""
    model = message(graph)
    del model.metadata_props[:]
    return model


def losses(graph, steps=2, **options):
    step = tt.TrainingStep(graph, "mean_squared_error", **options)
    return [step({"x": X, "labels": Y})["loss"] for _ in range(steps)], step


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("recipe", [{}, {"average": 0.9}, {"accumulate": 2}], ids=["plain", "average", "accumulate"])
def test_state_without_metadata_is_recognized(optimizer, recipe):
    expected, _ = losses(tx.load(message(trained(optimizer, steps=3, **recipe))))
    graph = tx.load(without_metadata(trained(optimizer, steps=3, **recipe)))
    result, step = losses(graph, **recipe)
    assert result == pytest.approx(expected, rel=1e-6)
    assert any(f"from the {optimizer} state" in note for note in step.notes)
    written = [tensor.name for tensor in message(step.write_back()).graph.initializer]
    assert not any(name.count("__") > 1 for name in written)
    assert sorted(v.name for v in graph.variables) == sorted(v.name for v in linear().variables)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda state: state.pop("training__step"), 'no "training__step"'),
        (lambda state: state.update({"w__adam_m": np.zeros(7, np.float32)}), '"w__adam_m" is float32'),
        (lambda state: state.update({"u__adam_v": state.pop("w__adam_v")}), 'belongs to no initializer "u"'),
        (lambda state: state.update({"w__lion_m": state["w__adam_m"]}), "adam, lion"),
    ],
    ids=["no count", "another shape", "another name", "two optimizers"],
)
def test_state_that_does_not_fit_is_refused_and_not_trained(change, message):
    model = without_metadata(trained())
    initializers = {tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
    change(initializers)
    del model.graph.initializer[:]
    model.graph.initializer.extend(onnx.numpy_helper.from_array(array, name) for name, array in initializers.items())
    graph = tx.load(model)
    before = contents(graph)
    with pytest.raises(InvalidCall, match="have names of training state") as caught:
        tt.TrainingStep(graph, "mean_squared_error")
    assert message in str(caught.value.given)
    assert contents(graph).keys() == before.keys()


def test_a_weight_may_have_the_name_of_a_slot():
    graph = linear()
    graph.rename("w", "b__adam_m")
    step = tt.TrainingStep(graph, "mean_squared_error")
    assert "b__adam_m" in step._step_graph.parameters


def test_identity_is_kept_without_metadata():
    model = without_metadata(trained())
    stream = io.BytesIO()
    tx.export(tx.load(model), stream)
    assert onnx.ModelProto.FromString(stream.getvalue()) == model


def test_state_is_found_by_its_name():
    graph = trained()
    result = graph["w__adam_m"]
    assert result.data.array().shape == graph["w"].data.array().shape
    assert result.data.array().any()
    with pytest.raises(KeyError, match="w__adam_m"):
        graph["w__adam_n"]
    with pytest.raises(InvalidCall):
        graph.rename("w__adam_m", "moment")


def test_state_is_renamed_with_its_variable():
    expected, _ = losses(trained(trainable=["w", "b"]))
    graph = trained(trainable=["w", "b"])
    graph.rename("w", "head.weight")
    assert {"head.weight__adam_m", "head.weight__adam_v"} <= set(graph.training_state.tensors)
    assert not any(name.startswith("w__") for name in graph.training_state.tensors)
    result, _ = losses(tx.load(message(graph)))
    assert result == pytest.approx(expected, rel=1e-6)


def test_names_with_a_common_prefix_are_distinguished():
    graph = trained()
    graph.rename("b", "w__b")
    graph.rename("w", "u")
    assert {"u__adam_m", "w__b__adam_m"} <= set(graph.training_state.tensors)
    losses(graph)


def test_an_edit_that_fails_leaves_the_names_of_the_state():
    graph = trained()

    def fail():
        with graph.editing():
            graph.rename("w", "u")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert "w__adam_m" in graph.training_state.tensors
    assert graph["w"].name == "w"


@pytest.mark.parametrize("kind", ["onnx", "native", "no metadata"])
def test_state_is_left_out_on_demand(kind, tmp_path):
    graph = trained()
    path = tmp_path / ("model.safetensors" if kind == "native" else "model.onnx")
    if kind == "native":
        graph.save(path)
    else:
        onnx.save(without_metadata(graph) if kind == "no metadata" else message(graph), path)
    result = tx.load(path, training_state=False)
    assert result.training_state is None
    assert sorted(v.name for v in result.variables) == sorted(v.name for v in linear().variables)
    assert tt.TrainingStep(result, "mean_squared_error").steps == 0


def test_native_files_are_saved_without(tmp_path):
    graph = trained()
    graph.save(tmp_path / "with.safetensors")
    graph.save(tmp_path / "without.safetensors", training_state=False)
    assert tx.load(tmp_path / "with.safetensors").training_state is not None
    assert tx.load(tmp_path / "without.safetensors").training_state is None
    assert graph.training_state is not None


def test_inspect_shows_the_state(tmp_path, capsys):
    path = tmp_path / "model.onnx"
    onnx.save(message(trained()), path)
    assert main(["inspect", str(path), "--variables"]) == 0
    shown = capsys.readouterr().out
    assert "training state" in shown
    assert re.search("optimizer +adam\n", shown)
    assert re.search("parameters +w, b\n", shown)
    assert "w__adam_m" in shown
    assert main(["inspect", str(path), "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert {"w__adam_m", "training__step"} <= {tensor["name"] for tensor in data["training_state"]["tensors"]}
    onnx.save(message(linear()), path)
    assert main(["inspect", str(path)]) == 0
    assert "training state" not in capsys.readouterr().out


def test_the_command_renames_state(tmp_path):
    graph = trained()
    graph.save(tmp_path / "model.safetensors")
    command = ["rename", str(tmp_path / "model.safetensors"), "w=u", "-o", str(tmp_path / "renamed.safetensors")]
    assert main(command) == 0
    state = tx.load(tmp_path / "renamed.safetensors").training_state
    assert state is not None
    assert "u__adam_m" in state.tensors


def test_state_of_variables_that_are_gone_is_left_out_on_demand(tmp_path):
    """Follow the advice of the error message; state of another shape is left out, too."""
    proto = without_metadata(trained())
    for tensor in proto.graph.initializer:
        if tensor.name.startswith("b__"):
            tensor.name = tensor.name.replace("b__", "gone__", 1)
        if tensor.name == "w__adam_m":
            tensor.CopyFrom(onnx.numpy_helper.from_array(np.zeros(7, np.float32), tensor.name))
    onnx.save(proto, tmp_path / "model.onnx")
    with pytest.raises(tx.TenonnxError, match="training_state=False"):
        tt.TrainingStep(tx.load(tmp_path / "model.onnx"), "mean_squared_error")
    result = tx.load(tmp_path / "model.onnx", training_state=False)
    assert sorted(v.name for v in result.variables) == sorted(v.name for v in linear().variables)
    assert tt.TrainingStep(result, "mean_squared_error").steps == 0


def test_groups_follow_a_rename(tmp_path):
    graph = linear()
    groups = [tt.Group("w", rate=0.0), tt.Group("b", rate=2.0)]
    step = tt.TrainingStep(graph, "mean_squared_error", tt.SGD(0.1), groups=groups, backend="numpy")
    shapes = {v.name: v.tensor.shape for v in (*graph.inputs, *graph.outputs)}
    x = np.random.default_rng(0).normal(size=(4, shapes[graph.inputs[0].name][-1])).astype(np.float32)
    batch = {graph.inputs[0].name: x, "labels": np.zeros((4, shapes[graph.outputs[0].name][-1]), np.float32)}
    step(batch)
    step.write_back()
    graph.rename("w", "kernel")
    graph.save(tmp_path / "renamed.safetensors")
    result = tx.load(tmp_path / "renamed.safetensors")
    before = {v.name: v.data.array().copy() for v in result.variables}
    again = tt.TrainingStep(result, "mean_squared_error", backend="numpy")
    assert [(group.pattern, group.rate) for group in again.recipe.groups] == [("kernel", 0.0), ("b", 2.0)]
    again(batch)
    after = {v.name: v.data.array() for v in again.write_back().variables}
    assert (after["kernel"] == before["kernel"]).all()
    assert (after["b"] != before["b"]).any()
