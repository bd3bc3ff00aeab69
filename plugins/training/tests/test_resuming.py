"""Resumed training keeps its settings, unless new ones are passed."""

import io

import numpy as np
import pytest
from trained_models import X, Y, contents, linear

import tenonnx as tx
import tenonnx_training as tt
from tenonnx.errors import InvalidCall
from tenonnx.graph.training import TrainingState


def reloaded(graph):
    stream = io.BytesIO()
    tx.export(graph, stream, include_training_state=True)
    return tx.load(stream.getvalue())


HOW = {
    "loss": tt.MeanSquaredError(reduction="sum"),
    "optimizer": tt.AdamW(tt.CosineDecay(0.1, steps=8, warmup=2), weight_decay=0.1),
    "trainable": ["w"],
    "clip_norm": 0.5,
    "loss_scale": 4.0,
    "batch_size": 3,
    "seed": 5,
    "frozen_statistics": True,
}


def test_no_option_has_to_be_repeated():
    whole, parts = linear(), linear()
    expected = tt.fit(whole, (X, Y), epochs=4, **HOW).losses
    first = tt.fit(parts, (X, Y), epochs=2, **HOW).losses
    parts = reloaded(parts)
    rest = tt.fit(parts, (X, Y), epochs=2)
    assert first + rest.losses == expected
    assert not [note for note in rest.notes if ", was " in note]
    np.testing.assert_array_equal(contents(parts)["w"], contents(whole)["w"])
    assert contents(parts)["b"] == contents(linear())["b"]
    assert parts.training_state.settings == whole.training_state.settings


@pytest.mark.parametrize("schedule", [tt.LinearDecay(0.1, 0.01, steps=3), tt.StepDecay(0.1, every=2)])
def test_schedules_are_restored(schedule):
    graph = linear()
    tt.fit(graph, (X, Y), loss="mean_squared_error", optimizer=tt.Momentum(schedule))
    assert tt.TrainingStep(reloaded(graph)).optimizer == tt.Momentum(schedule)


def test_given_options_take_precedence_and_are_noted():
    graph = linear()
    tt.fit(graph, (X, Y), loss="mean_squared_error", optimizer=tt.Adam(0.005), batch_size=2)
    history = tt.fit(graph, (X, Y), loss="mean_squared_error", optimizer=tt.Adam(0.1), batch_size=4, clip_norm=1.0)
    assert len(history.losses) == 1
    noted = [note for note in history.notes if ", was " in note]
    assert noted == [
        "learning_rate is now 0.1, was 0.005",
        "clip_norm is now 1.0, was the default",
        "batch_size is now 4, was 2",
    ]


def test_an_optimizer_by_its_name_keeps_its_settings():
    graph = linear()
    tt.fit(graph, (X, Y), loss="mean_squared_error", optimizer=tt.SGD(0.25))
    assert tt.TrainingStep(graph, optimizer="sgd").optimizer == tt.SGD(0.25)


def test_functions_of_the_user_have_to_be_given_again():
    def slower(step):
        return 0.1 / (step + 1)

    def squared(prediction, labels):
        return tt.MeanSquaredError()(prediction, labels)

    graph = linear()
    notes = tt.fit(graph, (X, Y), loss=squared, optimizer=tt.SGD(slower)).notes
    assert any("files do not store squared" in note for note in notes)
    assert any("files do not store the learning rate" in note for note in notes)
    graph = reloaded(graph)
    with pytest.raises(InvalidCall, match="cannot resume with the loss"):
        tt.fit(graph, (X, Y), optimizer=tt.SGD(slower))
    with pytest.raises(InvalidCall, match="cannot resume with the optimizer"):
        tt.fit(graph, (X, Y), loss=squared)
    tt.fit(graph, (X, Y), loss=squared, optimizer=tt.SGD(slower))


def test_a_loss_is_needed_at_first():
    with pytest.raises(InvalidCall, match="loss") as caught:
        tt.fit(linear(), (X, Y))
    assert "mean_squared_error" in caught.value.available


NONSENSE = [
    {"batch_size": "x"},
    {"trainable": 5},
    {"trainable": [[]]},
    {"clip_norm": "x"},
    {"loss": {"name": "SGD", "x": 1}},
    {"optimizer": {"name": "adam", "nonsense": 1}},
    {"optimizer": 3},
    {"shuffle": 2},
    {"seed": "one"},
]


@pytest.mark.parametrize("nonsense", NONSENSE)
def test_meaningless_state_is_refused(nonsense):
    graph = linear()
    tt.fit(graph, (X, Y), loss="mean_squared_error")
    state = graph.training_state
    graph.training_state = TrainingState(state.tensors, {**state.settings, **nonsense})
    with pytest.raises(InvalidCall):
        tt.fit(graph, (X, Y))


def test_epoch_numbers_go_on(capsys):
    graph = linear()
    tt.fit(graph, (X, Y), loss="mean_squared_error", epochs=2)
    tt.fit(graph, (X, Y), progress=True)
    assert capsys.readouterr().err.startswith("epoch 3: loss")


def test_epochs_are_shown_as_they_end(capsys):
    shown = []
    tt.fit(
        linear(),
        (X, Y),
        loss="mean_squared_error",
        epochs=2,
        progress=True,
        callbacks=[lambda measured: shown.append(capsys.readouterr().err)],
    )
    assert [text.split(":")[0] for text in shown] == ["epoch 1", "epoch 2"]


def test_clipping_can_be_ended():
    graph = linear()
    tt.fit(graph, (X, Y), **HOW)
    history = tt.fit(graph, (X, Y), clip_norm=float("inf"))
    assert "clip_norm is now inf, was 0.5" in history.notes
    assert graph.training_state.settings["clip_norm"] is None


def test_an_optimizer_class_is_refused_for_a_resumed_run_too():
    graph = linear()
    tt.fit(graph, (X, Y), **HOW)
    with pytest.raises(InvalidCall, match="optimizer is neither"):
        tt.fit(graph, (X, Y), optimizer=tt.Adam)
