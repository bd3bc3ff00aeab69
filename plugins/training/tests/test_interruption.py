"""Ctrl-C never separates an update from its bookkeeping, so that resuming gives equal results."""

import signal
import threading

import numpy as np
import pytest
from trained_models import X, Y, contents, linear

import tenonnx_training as tt
from tenonnx_training.interruption import Interruption

HOW = {
    "loss": "mean_squared_error",
    "optimizer": tt.Adam(0.1),
    "batch_size": 2,
    "seed": 3,
    "metrics": ["mean_absolute_error"],
}


@pytest.fixture(autouse=True)
def interruptible():
    """Restore the interrupt handler, which shells disable for background processes."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize("stop", [1, 3])
def test_a_signal_after_an_update_does_not_repeat_it(monkeypatch, stop):
    """Python may call handlers between any two instructions: here right after the update."""
    whole = linear()
    expected = tt.fit(whole, (X, Y), epochs=2, **HOW)
    train, steps = tt.TrainingStep.train, []

    def interrupted(step, batch):
        measured = train(step, batch)
        steps.append(measured)
        if len(steps) == stop:
            signal.raise_signal(signal.SIGINT)
        return measured

    monkeypatch.setattr(tt.TrainingStep, "train", interrupted)
    graph = linear()
    first = tt.fit(graph, (X, Y), epochs=2, **HOW)
    assert first.interrupted
    assert len(first.losses) == stop
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    left = 2 - graph.training_state.settings["epoch"]
    rest = tt.fit(graph, (X, Y), epochs=left, metrics=HOW["metrics"])
    assert first.losses + rest.losses == expected.losses
    assert rest.epochs == expected.epochs[-len(rest.epochs) :]
    np.testing.assert_array_equal(contents(graph)["w"], contents(whole)["w"])


def test_a_second_signal_does_not_wait():
    ended = []

    def twice():
        interruption = Interruption()
        with interruption.caught(), interruption.whole():
            signal.raise_signal(signal.SIGINT)
            ended.append("first")
            signal.raise_signal(signal.SIGINT)
            ended.append("second")

    with pytest.raises(KeyboardInterrupt):
        twice()
    assert ended == ["first"]


def test_a_signal_elsewhere_does_not_wait():
    ended = []

    def once():
        with Interruption().caught():
            signal.raise_signal(signal.SIGINT)
            ended.append("not at once")

    with pytest.raises(KeyboardInterrupt):
        once()
    assert not ended


def test_other_signal_handlers_stay():
    seen = []
    before = signal.signal(signal.SIGINT, lambda *_: seen.append("theirs"))
    try:
        with Interruption().caught():
            signal.raise_signal(signal.SIGINT)
    finally:
        signal.signal(signal.SIGINT, before)
    assert seen == ["theirs"]


def test_training_in_another_thread():
    histories = []
    thread = threading.Thread(target=lambda: histories.append(tt.fit(linear(), (X, Y), **HOW)))
    thread.start()
    thread.join()
    assert len(histories[0].epochs) == 1
