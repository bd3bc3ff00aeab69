"""Common first mistakes of users, in Python and on the command line, and their messages."""

import inspect
import json
import re
from dataclasses import fields

import numpy as np
import pytest
from trained_models import EXAMPLES, X, Y, digits, linear

import tenonnx as tx
import tenonnx_training as tt
from tenonnx.errors import InvalidCall, InvalidFeed
from tenonnx_cli import main
from tenonnx_standard.casting import cast
from tenonnx_training.losses import LOSSES
from tenonnx_training.metrics import METRICS
from tenonnx_training.names import LOSS_NAMES, METRIC_NAMES, OPTIMIZER_NAMES
from tenonnx_training.optimizers import OPTIMIZERS

CNN = EXAMPLES / "digits_cnn" / "digits-cnn.onnx"


@pytest.fixture
def train(tmp_path, capsys):
    """Run ``tenonnx train`` on the first digits, with some arrays replaced; returns all output."""

    def run(*arguments, loss="softmax_cross_entropy", **others):
        _, images, labels = digits()
        arrays = {"images": images[:64], "labels": labels[:64], **others}
        np.savez(tmp_path / "data.npz", **{name: array for name, array in arrays.items() if array is not None})
        needed = [*(["--loss", loss] if loss else []), "--data", tmp_path / "data.npz"]
        code = main(["train", str(CNN), *map(str, (*needed, *arguments))])
        shown = capsys.readouterr()
        return code, shown.out + shown.err

    return run


@pytest.fixture
def output(tmp_path):
    return "-o", tmp_path / "tuned.onnx"


# ----- labels ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float32", "float64", "int64"])
def test_one_hot_labels(dtype):
    graph, images, labels = digits()
    with pytest.raises(InvalidFeed, match="int64") as caught:
        tt.fit(graph, (images[:9], np.eye(10, dtype=dtype)[labels[:9]]), loss="softmax_cross_entropy")
    assert dtype in caught.value.given
    assert "argmax" in caught.value.do


@pytest.mark.parametrize("dtype", [str, object])
def test_labels_of_letters(dtype):
    graph, images, labels = digits()
    with pytest.raises(InvalidFeed, match="int64") as caught:
        tt.fit(graph, (images[:9], labels[:9].astype(str).astype(dtype)), loss="softmax_cross_entropy")
    assert "np.unique" in caught.value.do


def test_labels_are_cast_where_that_is_exact():
    runs = [tt.fit(linear(), (X, Y.astype(d)), loss="mean_squared_error").losses for d in ("float32", "int64", "uint8")]
    assert runs == [runs[0]] * 3
    with pytest.warns(UserWarning, match='input "labels": float64 is cast to float32'):
        tt.fit(linear(), (X, Y.astype(np.float64) / 3), loss="mean_squared_error")


def test_data_without_labels(train, output):
    with pytest.raises(InvalidFeed, match="not found in the data") as caught:
        tt.fit(linear(), {"x": X}, loss="mean_squared_error")
    assert caught.value.given == "x"
    code, shown = train(*output, labels=None)
    assert code == 2
    assert "data.npz has no labels" in shown


def test_labels_that_are_not_there(train, output):
    code, shown = train(*output, "--labels", "lab")
    assert code == 2
    assert "--labels: no such array or column" in shown
    assert "available  labels" in shown


def test_labels_of_another_name_and_length(train, output):
    code, shown = train(*output, "--labels", "y", y=np.zeros(5, int))
    assert code == 2
    assert "y: [5]" in shown
    code, shown = train(*output, "--labels", "y", y=np.zeros(64, int))
    assert code == 0


# ----- invalid models, learning rates and losses ----------------------------------------------------------------------


def test_a_path_instead_of_a_graph_is_refused():
    for make in (tt.TrainingStep, tt.fit):
        with pytest.raises(InvalidCall, match="the model is not a graph") as caught:
            make("model.onnx", (X, Y))
        assert "tx.load" in caught.value.do


@pytest.mark.parametrize("rate", [None, float("nan"), "fast", -1.0])
def test_a_schedule_without_numbers(rate):
    with pytest.raises(InvalidCall, match="learning rate") as caught:
        tt.fit(linear(), (X, Y), loss="mean_squared_error", optimizer=tt.SGD(lambda step: rate))
    assert repr(rate) in caught.value.given


def test_a_loss_that_explodes_names_the_rate(train, output):
    code, shown = train(*output, "--lr", "1e30", "--epochs", 9)
    assert code == 2
    assert "learning rate 1e+30" in shown
    assert "--clip-norm 1" in shown


def test_a_loss_without_a_value_to_read():
    graph = tx.Graph("counts", opsets={"ai.onnx": 21})
    w = graph.variable("w", np.float32([1]))
    graph.output("y", cast(graph.input("x", "float32", (1,)) * w, to=tx.DType.int64))
    with pytest.raises(InvalidCall, match="floating-point output") as caught:
        tt.TrainingStep(graph, "mean_squared_error")
    assert "output= (--of)" in caught.value.do


# ----- the command ----------------------------------------------------------------------------------------------------


def test_help_names_what_there_is(capsys):
    assert main(["train", "--help"]) == 0
    words = re.findall(r"\w+", capsys.readouterr().out)
    assert {*LOSSES, *OPTIMIZERS, *METRICS} <= {*words}


def test_completion_offers_what_there_is():
    assert [*LOSS_NAMES] == [*LOSSES]
    assert [*METRIC_NAMES] == [*METRICS]
    assert [*OPTIMIZER_NAMES] == [*OPTIMIZERS]


def test_resuming_without_options_keeps_the_settings(train, tmp_path, output):
    whole, state = tmp_path / "whole.safetensors", tmp_path / "state.safetensors"
    how = "--optimizer", "momentum", "--lr", 5e-3, "--trainable", "classifier.*, block2.*", "--batch-size", 16
    assert train(*how, "--epochs", 2, "--checkpoint", whole)[0] == 0
    assert train(*how, "--checkpoint", state)[0] == 0
    code, shown = train("--resume", state, "--checkpoint", state, loss=None)
    assert code == 0
    assert "epoch 2: loss" in shown
    assert "epoch 1: loss" not in shown
    assert ", was " not in shown
    assert tx.load(state).training_state.settings == tx.load(whole).training_state.settings
    for one, other in zip(tx.load(state).variables, tx.load(whole).variables, strict=True):
        np.testing.assert_array_equal(one.data.array(), other.data.array())
    code, shown = train("--resume", state, *output, "--lr", 1e-4, "--optimizer", "momentum")
    assert code == 0
    assert "note: learning_rate is now 0.0001, was 0.005" in shown


def test_a_file_without_state_is_named(train, output):
    code, shown = train("--resume", CNN, *output)
    assert code == 2
    assert f"{CNN}, which has none" in shown


def test_epochs_are_in_json(train, output):
    code, shown = train(*output, "--epochs", 2, "--json")
    assert code == 0
    assert [epoch["epoch"] for epoch in json.loads(shown)["epochs"]] == [1, 2]


SCHEDULES = [
    ("cosine", tt.CosineDecay(0.5, 4)),
    ("cosine:9", tt.CosineDecay(0.5, 9)),
    ("linear", tt.LinearDecay(0.5, 0.0, 4)),
    ("step:3", tt.StepDecay(0.5, 3)),
]


@pytest.mark.parametrize(("text", "schedule"), SCHEDULES)
def test_schedules_of_the_command(train, tmp_path, text, schedule):
    """Two epochs of two batches are four steps."""
    state = tmp_path / "state.safetensors"
    how = "--optimizer", "sgd", "--lr", 0.5, "--schedule", text, "--checkpoint", state, "--epochs", 2
    assert train(*how)[0] == 0
    graph = tx.load(state)
    step = tt.TrainingStep(graph)
    assert step.optimizer.learning_rate == schedule
    assert any("reached zero" in note for note in step.notes) == (schedule(4) == 0)


@pytest.mark.parametrize("text", ["step", "cosine:", "cosine:0", "cosine:x", "sine", "linear:-1"])
def test_no_schedule(train, output, text):
    code, shown = train(*output, "--schedule", text)
    assert code == 2
    assert "cosine:100" in shown


def test_frozen_statistics_of_the_command(train, tmp_path):
    state = tmp_path / "state.safetensors"
    assert train("--frozen-statistics", "--checkpoint", state)[0] == 0
    assert tt.TrainingStep(tx.load(state))._step_graph.statistics == []
    assert train("--resume", state, "--no-frozen-statistics", "--checkpoint", state)[0] == 0
    assert len(tt.TrainingStep(tx.load(state))._step_graph.statistics) == 4


def test_a_step_file_has_the_requested_opset_and_no_unused_initializers(train, tmp_path):
    import onnx

    step = tmp_path / "step.onnx"
    code, _ = train("--emit-step", step, "--epochs", 0, "--opset", 18, "--domains", "ai.onnx")
    assert code == 0
    model = onnx.load(step)
    assert [(entry.domain, entry.version) for entry in model.opset_import] == [("", 18)]
    used = {name for node in model.graph.node for name in node.input}
    assert {tensor.name for tensor in model.graph.initializer} <= used


def test_a_new_rate_replaces_a_function(train, tmp_path, output):
    state = tmp_path / "state.safetensors"
    graph, images, labels = digits()
    how = {"loss": "softmax_cross_entropy", "optimizer": tt.SGD(lambda step: 0.1), "checkpoint": state}
    tt.fit(graph, (images[:64], labels[:64]), **how)
    code, shown = train("--resume", state, *output)
    assert code == 2
    assert "--optimizer / optimizer=" in shown
    assert train("--resume", state, "--lr", 0.01, *output)[0] == 0


def test_hints_are_valid_in_the_api_and_on_the_command_line(tmp_path, capsys, train, output):
    gradient = "grad", str(CNN), "--of", "scores", "--wrt", "images", "-o", str(tmp_path / "gradient.onnx")
    assert main(gradient) == 2
    assert "give its cotangent as an input: --cotangent" in capsys.readouterr().err
    state = tmp_path / "state.safetensors"
    assert train("--checkpoint", state)[0] == 0
    code, shown = train("--resume", state, "--optimizer", "sgd", *output)
    assert code == 2
    assert "no --resume / graph.training_state = None" in shown


def test_options_are_documented_once():
    shown, named = inspect.signature(tt.fit).parameters, [each.name for each in fields(tt.TrainingConfig)]
    assert list(shown) == ["graph", "data", "config", *named, "options"]
    assert shown["epochs"].default == 1
    assert {each.name for each in fields(tt.StepConfig)} <= {*inspect.signature(tt.TrainingStep).parameters}


def test_a_configuration_is_as_good_as_keywords():
    how = {"loss": "mean_squared_error", "optimizer": tt.SGD(1e-2), "epochs": 3, "batch_size": 2, "seed": 5}
    expected = tt.fit(linear(), (X, Y), **how).losses
    config = tt.TrainingConfig(**how)
    assert tt.fit(linear(), (X, Y), config=config).losses == expected
    assert tt.fit(linear(), (X, Y), config=config, epochs=1).losses == expected[: len(expected) // 3]
    with pytest.raises(InvalidCall, match='TrainingStep has no option "epochs"'):
        tt.TrainingStep(linear(), "mean_squared_error", epochs=3)
