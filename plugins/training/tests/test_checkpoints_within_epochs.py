"""Checkpoints within epochs: written in the background, complete whenever the process is killed."""

import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pytest
from trained_models import X, Y, contents, linear

import tenonnx as tx
import tenonnx_training as tt

HOW = {"loss": "mean_squared_error", "optimizer": tt.Adam(0.01), "batch_size": 2, "seed": 3, "backend": "numpy"}
DATA = (np.tile(X, (5, 1)), np.tile(Y, (5, 1)))


class Steps(tt.Callback):
    """Calls a function with the number of each step."""

    def __init__(self, function):
        self.function = function

    def on_step(self, training):
        self.function(training.steps)


@pytest.fixture
def saves(monkeypatch):
    """A list of functions that ``Graph.save`` calls first, with the number of trained samples."""
    held, before = tx.Graph.save, []

    def save(graph, path):
        for function in before:
            function(graph.training_state.settings["samples"])
        held(graph, path)

    monkeypatch.setattr(tx.Graph, "save", save)
    return before


def test_the_next_batch_does_not_wait_for_a_write(saves, tmp_path):
    """The first write ends only after the second step, which would otherwise wait forever."""
    second = threading.Event()
    saves.append(lambda samples: samples != 2 or second.wait(60) or pytest.fail("the second step waits"))
    history = tt.fit(
        linear(),
        DATA,
        checkpoint=tmp_path / "c.safetensors",
        checkpoint_every=1,
        callbacks=[Steps(lambda step: step == 2 and second.set())],
        **HOW,
    )
    assert len(history.losses) == 10
    assert history.checkpoint_error is None


def test_every_checkpoint_is_written_in_order(saves, tmp_path):
    written = []
    saves.append(lambda samples: (time.sleep(0.01), written.append(samples)))
    tt.fit(linear(), DATA, checkpoint=tmp_path / "c.safetensors", checkpoint_every=2, **HOW)
    assert written == [4, 8, 12, 16, 20, 0]


def test_a_checkpoint_has_the_state_of_its_step(saves, tmp_path):
    """A checkpoint contains nothing from batches trained during the write, and each can be resumed."""
    paths = []

    def copied(samples):
        if (tmp_path / "c.safetensors").exists():  # written by the previous save
            paths.append(tmp_path / f"{len(paths)}.safetensors")
            paths[-1].write_bytes((tmp_path / "c.safetensors").read_bytes())

    saves.append(copied)
    how = {**HOW, "accumulate": 3, "metrics": ["mean_absolute_error"]}
    whole = linear()
    expected = tt.fit(whole, DATA, checkpoint=tmp_path / "c.safetensors", checkpoint_every=1, **how)
    assert len(paths) == 10
    more = linear()
    after = tt.fit(more, DATA, epochs=2, **how)
    for done, path in enumerate(paths, 1):
        graph = tx.load(path)
        rest = tt.fit(graph, DATA, epochs=1, metrics=how["metrics"])
        reference, model = (expected, whole) if done < 10 else (after, more)  # the last batch ends the epoch first
        assert rest.losses == reference.losses[done:]
        assert rest.epochs == reference.epochs
        np.testing.assert_array_equal(contents(graph)["w"], contents(model)["w"])


def test_a_failing_callback_leaves_the_last_checkpoint(tmp_path):
    def fail(step):
        if step == 4:
            raise RuntimeError("of the user")

    with pytest.raises(RuntimeError, match="of the user"):
        tt.fit(
            linear(),
            DATA,
            checkpoint=tmp_path / "c.safetensors",
            checkpoint_every=1,
            callbacks=[Steps(fail)],
            **HOW,
        )
    assert tx.load(tmp_path / "c.safetensors").training_state.settings["samples"] == 6


def test_a_write_that_fails_is_a_warning_and_the_next_one_counts(saves, tmp_path):
    def full(samples):
        if samples in (2, 4):
            raise OSError(28, "No space left on device")

    saves.append(full)
    with pytest.warns(UserWarning, match="No space left on device") as warned:
        history = tt.fit(linear(), DATA, checkpoint=tmp_path / "c.safetensors", checkpoint_every=1, **HOW)
    assert len(warned) == 1
    assert history.checkpoint_error is None
    assert tx.load(tmp_path / "c.safetensors").training_state.settings["epoch"] == 1


def test_frozen_weights_and_the_form_in_use_are_in_the_checkpoint(tmp_path):
    """A checkpoint within an epoch has the same variables as one after an epoch."""
    seen = []
    graph = linear()

    def read(step):
        if step == 9:
            seen.append(tx.load(tmp_path / "c.safetensors"))

    tt.fit(
        graph,
        DATA,
        checkpoint=tmp_path / "c.safetensors",
        checkpoint_every=1,
        trainable=["w"],
        callbacks=[Steps(read)],
        **HOW,
    )
    assert contents(seen[0]).keys() == contents(graph).keys()
    np.testing.assert_array_equal(contents(seen[0])["b"], contents(graph)["b"])
    assert not np.array_equal(contents(seen[0])["w"], contents(graph)["w"])


PROGRAM = """
import sys
import numpy as np
import tenonnx as tx
import tenonnx_training as tt
model, data, checkpoint = sys.argv[1:]
print("ready", flush=True)
tt.fit(
    tx.load(model), dict(np.load(data)), loss="mean_squared_error", optimizer=tt.Adam(0.01), batch_size=2, seed=3,
    epochs=200, backend="numpy", checkpoint=checkpoint, checkpoint_every=1,
    callbacks=[tt.EverySteps(40, lambda training: print(training.steps, flush=True))],
)
"""


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="Windows ends processes otherwise")
@pytest.mark.parametrize("delay", [0.0, 0.004, 0.011])
def test_a_killed_training_resumes_bit_for_bit(tmp_path, delay):
    model, data, checkpoint = (tmp_path / name for name in ("m.onnx", "d.npz", "c.safetensors"))
    tx.export(linear(), model)
    np.savez(data, x=DATA[0], labels=DATA[1])
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(model), str(data), str(checkpoint)], stdout=subprocess.PIPE, text=True
    )
    with process:
        assert process.stdout.readline() == "ready\n"
        assert process.stdout.readline() == "40\n"
        time.sleep(delay)
        process.kill()
    graph = tx.load(checkpoint)
    settings = graph.training_state.settings
    done = settings["epoch"] * 10 + settings["samples"] // 2
    assert done >= 38
    whole, data = linear(), {"x": DATA[0], "labels": DATA[1]}
    rest = tt.fit(graph, data, epochs=2)
    expected = tt.fit(whole, data, epochs=len(rest.epochs), **HOW)
    assert rest.losses == expected.losses[done:]
    assert rest.epochs == expected.epochs
    for name in ("w", "b"):
        np.testing.assert_array_equal(contents(graph)[name], contents(whole)[name])
