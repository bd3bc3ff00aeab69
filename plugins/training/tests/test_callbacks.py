"""Callbacks of ``fit``: hooks, effects, and the built-in ones."""

import csv
import json
import sys
from types import SimpleNamespace

import numpy as np
import pytest
from trained_models import X, Y, linear

import tenonnx as tx
import tenonnx_training as tt
from tenonnx.errors import InvalidCall
from tenonnx_cli import main

OPTIONS = {"loss": "mean_squared_error", "batch_size": 2, "backend": "numpy"}


class Recorder(tt.Callback):
    def __init__(self):
        self.calls = []

    def on_start(self, training):
        self.calls.append(("start", training.epoch, training.steps))

    def on_step(self, training):
        assert training.loss == training.losses[-1]
        self.calls.append(("step", training.epoch, training.steps))

    def on_epoch(self, training):
        assert training.epochs[-1] == training.measured
        self.calls.append(("epoch", training.epoch, training.steps))

    def on_end(self, training):
        self.calls.append(("end", training.epoch, training.steps))


def test_hooks_are_called_in_order():
    recorder = Recorder()
    tt.fit(linear(), (X, Y), epochs=2, callbacks=[recorder], **OPTIONS)
    expected = [("start", 0, 0), ("step", 1, 1), ("step", 1, 2), ("epoch", 1, 2)]
    assert recorder.calls == [*expected, ("step", 2, 3), ("step", 2, 4), ("epoch", 2, 4), ("end", 2, 4)]


def test_on_end_is_called_when_training_fails():
    recorder = Recorder()
    with pytest.raises(tt.TrainingFailed):
        tt.fit(linear(), (X * 1e20, Y), callbacks=[recorder], optimizer=tt.SGD(1e20), epochs=3, **OPTIONS)
    assert recorder.calls[-1][0] == "end"


def test_a_callback_stops_within_an_epoch_and_training_resumes_there():
    plain, stopped = linear(), linear()
    tt.fit(plain, (X, Y), epochs=3, **OPTIONS)
    history = tt.fit(stopped, (X, Y), epochs=3, callbacks=[tt.EverySteps(3, lambda training: True)], **OPTIONS)
    assert len(history.losses) == 3
    assert len(history.epochs) == 1
    tt.fit(stopped, (X, Y), epochs=2, loss="mean_squared_error", backend="numpy")
    for value in plain.variables:
        np.testing.assert_array_equal(value.data.array(), stopped[value.name].data.array())


def test_a_callback_changes_the_rate_and_files_keep_it(tmp_path):
    rates = []

    class Halve(tt.Callback):
        def on_epoch(self, training):
            rates.append(training.rate)
            training.rate = training.rate / 2

    graph, path = linear(), tmp_path / "c.safetensors"
    tt.fit(graph, (X, Y), epochs=3, optimizer=tt.SGD(0.1), callbacks=[Halve()], checkpoint=path, **OPTIONS)
    assert rates == [0.1, 0.05, 0.025]
    assert tx.load(path).training_state.settings["optimizer"]["learning_rate"] == 0.0125

    class Wrong(tt.Callback):
        def on_epoch(self, training):
            training.rate = -1.0

    with pytest.raises(InvalidCall, match="learning rate is negative"):
        tt.fit(linear(), (X, Y), callbacks=[Wrong()], **OPTIONS)


def test_the_best_model_is_kept(tmp_path):
    numbers = iter([3.0, 1.0, 2.0])
    contents = []

    class Measure(tt.Callback):
        def on_epoch(self, training):
            training.measured["loss"] = next(numbers)
            contents.append(training.graph["w"].data.array().copy())

    for suffix in ("onnx", "safetensors"):
        numbers, contents[:] = iter([3.0, 1.0, 2.0]), []
        path = tmp_path / f"best.{suffix}"
        tt.fit(linear(), (X, Y), epochs=3, callbacks=[Measure(), tt.BestCheckpoint(path)], **OPTIONS)
        np.testing.assert_array_equal(tx.load(path)["w"].data.array(), contents[1])
    assert tx.load(path).training_state.settings["epoch"] == 2
    with pytest.raises(InvalidCall, match='"accuracy" is monitored, but not measured'):
        tt.fit(linear(), (X, Y), callbacks=[tt.BestCheckpoint(path, monitor="accuracy")], **OPTIONS)


def test_a_resumed_training_keeps_the_best_model_of_before(tmp_path):
    graph, path = linear(), tmp_path / "best.onnx"
    tt.fit(graph, (X, Y), epochs=2, callbacks=[tt.BestCheckpoint(path)], **OPTIONS)
    best = path.read_bytes()
    tt.fit(graph, (X, Y), epochs=1, callbacks=[tt.BestCheckpoint(path)], **OPTIONS)
    assert path.read_bytes() != best
    best = path.read_bytes()
    graph.training_state.settings["history"].append({"epoch": 4, "loss": 0.0})
    tt.fit(graph, (X, Y), epochs=1, callbacks=[tt.BestCheckpoint(path)], **OPTIONS)
    assert path.read_bytes() == best


def test_a_plateau_lowers_the_rate():
    seen = []

    class Flat(tt.Callback):
        def on_epoch(self, training):
            training.measured["loss"] = 1.0
            seen.append(training.rate)

    callbacks = [Flat(), tt.PlateauDecay(0.5, epochs=2, floor=0.03)]
    tt.fit(linear(), (X, Y), epochs=7, optimizer=tt.SGD(0.1), callbacks=callbacks, **OPTIONS)
    assert seen == [0.1, 0.1, 0.1, 0.05, 0.05, 0.03, 0.03]
    with pytest.raises(InvalidCall, match="PlateauDecay: invalid factor"):
        tt.PlateauDecay(2.0)


def test_logs_are_tables_and_json_lines(tmp_path):
    table, lines = tmp_path / "log.csv", tmp_path / "log.jsonl"
    graph, callbacks = linear(), [tt.Log(table), tt.Log(lines, every=1)]
    tt.fit(graph, (X, Y), epochs=2, callbacks=callbacks, **OPTIONS)
    history = tt.fit(graph, (X, Y), epochs=1, callbacks=[tt.Log(table)], loss="mean_squared_error", backend="numpy")
    with table.open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["epoch"] for row in rows] == ["1", "2", "3"]
    assert [float(row["loss"]) for row in rows] == [epoch["loss"] for epoch in history.epochs]
    assert history.resumed == 2
    assert rows[2]["step"] == "6"
    result = [json.loads(line) for line in lines.read_text().splitlines()]
    assert [row["step"] for row in result] == [1, 2, 2, 3, 4, 4]
    assert "epoch" in result[2]
    for wrong in (lambda: tt.Log("log.txt"), lambda: tt.Log("log.csv", every=2)):
        with pytest.raises(InvalidCall, match="log"):
            wrong()


def test_tensorboard_needs_its_package(tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "tensorboardX", None)
    with pytest.raises(InvalidCall, match="tensorboardX") as caught:
        tt.fit(linear(), (X, Y), callbacks=[tt.TensorBoard(tmp_path)], **OPTIONS)
    assert "tenonnx-training[tensorboard]" in caught.value.do


@pytest.mark.parametrize("wrong", [3, tt.Log, "log.csv"])
def test_invalid_callbacks_are_refused(wrong):
    with pytest.raises(InvalidCall, match="neither a Callback nor a function"):
        tt.fit(linear(), (X, Y), callbacks=[wrong], **OPTIONS)


def train(tmp_path, *more):
    tx.export(linear(), tmp_path / "m.onnx")
    np.savez(tmp_path / "d.npz", x=X, labels=Y)
    common = ["train", str(tmp_path / "m.onnx"), "--data", str(tmp_path / "d.npz"), "--loss", "huber"]
    return main([*common, "--batch-size", "2", "--epochs", "2", *map(str, more)])


def test_the_command_writes_the_log_and_the_best_model(tmp_path, capsys):
    log, best = tmp_path / "log.csv", tmp_path / "best.onnx"
    assert train(tmp_path, "--log", log, "--best", best, "--monitor", "loss") == 0
    assert [line.split(",")[0] for line in log.read_text().splitlines()] == ["epoch", "1", "2"]
    assert tx.load(best)["w"].shape == (2, 1)
    assert train(tmp_path, "--log", log) == 2
    assert train(tmp_path, "--log", tmp_path / "log.txt", "--best", best) == 2
    assert train(tmp_path, "--best", best, "--monitor", "f1") == 2
    assert train(tmp_path, "--monitor", "loss", "-o", best) == 2
    assert "--monitor was given without --best" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("schedule", "kind"),
    [("one-cycle", "OneCycle"), ("polynomial:7", "PolynomialDecay"), ("restarts:3", "WarmRestarts")],
)
def test_schedules_of_the_command(tmp_path, schedule, kind):
    path = tmp_path / "c.safetensors"
    assert train(tmp_path, "--lr", "0.1", "--schedule", schedule, "--checkpoint", path) == 0
    result = tx.load(path).training_state.settings["optimizer"]["learning_rate"]
    assert result["schedule"] == kind
    assert result["steps"] == {"OneCycle": 4, "PolynomialDecay": 7, "WarmRestarts": 3}[kind]


@pytest.mark.parametrize("schedule", ["restarts", "step", "one-cycle:x", "round"])
def test_unknown_schedules(tmp_path, schedule, capsys):
    assert train(tmp_path, "--schedule", schedule, "-o", tmp_path / "o.onnx") == 2
    assert "one-cycle" in capsys.readouterr().err


@pytest.fixture
def shown(monkeypatch):
    """Pages that a notebook would show, in order."""
    pages = []
    handle = SimpleNamespace(update=pages.append)

    def display(page, *, display_id):
        assert display_id is True
        pages.append(page)
        return handle

    monkeypatch.setitem(sys.modules, "IPython.display", SimpleNamespace(HTML=str, display=display))
    return pages


def test_a_live_plot_is_drawn_in_place(shown):
    how = {"loss": "mean_squared_error", "optimizer": tt.SGD(0.01), "backend": "numpy", "batch_size": 1}
    tt.fit(linear(), (X, Y), epochs=3, metrics=["mean_absolute_error"], callbacks=[tt.LivePlot(every=2)], **how)
    # one at the start, after steps 2, 4 ... 12, after each epoch, and at the end
    assert len(shown) == 1 + 6 + 3 + 1
    assert shown[0] == ""
    assert "loss of each step" in shown[2]
    assert "of each epoch" not in shown[2]
    for name in ("loss of each step", "loss of each epoch", "mean_absolute_error of each epoch"):
        assert name in shown[-1]


def test_a_live_plot_needs_a_notebook(monkeypatch):
    monkeypatch.setitem(sys.modules, "IPython.display", None)
    with pytest.raises(tx.InvalidCall, match="needs a notebook"):
        tt.fit(linear(), (X, Y), loss="mean_squared_error", backend="numpy", callbacks=[tt.LivePlot()])
    with pytest.raises(tx.InvalidCall, match="invalid number of steps"):
        tt.LivePlot(every=0)
