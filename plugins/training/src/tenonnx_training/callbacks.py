"""Callbacks of ``fit``: the hooks, and built-in callbacks for logs, checkpoints and learning rates."""

from __future__ import annotations

import csv
import json
import math
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from importlib import import_module
from pathlib import Path
from typing import Any

from tenonnx.extend import Graph, InvalidCall
from tenonnx.tools import import_optional
from tenonnx_training.curves import curve
from tenonnx_training.measuring import finite
from tenonnx_training.schedules import rate_at
from tenonnx_training.stopping import better, monitored


@dataclass
class Training:
    """State of a running training, for callbacks to read and control.

    ``step`` is the ``TrainingStep``; ``write_back`` updates its graph. ``epoch`` counts from 1. ``measured`` has the
    means of the epoch so far after a step, and also metrics and validation results after an epoch. ``loss`` is the loss
    of the last batch; ``losses`` and ``epochs`` are those of the ``History``.
    """

    step: Any
    write_back: Callable[[], Graph]
    epoch: int = 0
    loss: float = math.nan
    measured: Mapping[str, float] = field(default_factory=dict)
    losses: list[float] = field(default_factory=list)
    epochs: list[dict[str, float]] = field(default_factory=list)
    stopped: bool = False
    rate_changed: bool = False

    @property
    def steps(self) -> int:
        """Number of batches trained on, including those before a resumption."""
        return int(self.step.steps)

    @property
    def updates(self) -> int:
        """The number of updates."""
        return int(self.step.updates)

    @property
    def graph(self) -> Graph:
        """The trained graph with its current weights and training state."""
        return self.write_back()

    @property
    def state(self) -> Mapping[str, Any]:
        """The parameters and moments that the backend holds, by name."""
        state: Mapping[str, Any] = self.step.program.state
        return state

    @property
    def rate(self) -> float:
        """The learning rate of the next update. Setting it ends a schedule, and is kept in checkpoints."""
        return rate_at(self.step.optimizer.learning_rate, self.step.updates)

    @rate.setter
    def rate(self, rate: float) -> None:
        rate_at(rate, self.step.updates)
        self.step.optimizer = replace(self.step.optimizer, learning_rate=float(rate))
        self.rate_changed = True

    def stop(self) -> None:
        """End the training after this step or epoch; the graph keeps the trained weights."""
        self.stopped = True

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the current model: ``.onnx`` without training state, or native ``.safetensors`` with it."""
        import tenonnx as tx

        if os.fspath(path).lower().endswith(".safetensors"):
            self.graph.save(path)
        else:
            tx.export(self.graph, path)


class Callback:
    """Hooks of a training, each called with the ``Training``; hooks do nothing by default."""

    def on_start(self, training: Training) -> None:
        """Called before the first step."""

    def on_step(self, training: Training) -> None:
        """Called after each batch."""

    def on_epoch(self, training: Training) -> None:
        """Called after each epoch and its validation."""

    def on_end(self, training: Training) -> None:
        """Called at the end, also of a training that was interrupted or failed."""


@dataclass
class EverySteps(Callback):
    """Call ``function`` with the ``Training`` every ``steps`` steps; returning True ends the training."""

    steps: int
    function: Callable[[Training], bool | None]

    def __post_init__(self) -> None:
        if not (isinstance(self.steps, int) and self.steps > 0):
            raise InvalidCall("EverySteps: invalid number of steps", given=repr(self.steps))

    def on_step(self, training: Training) -> None:
        if training.steps % self.steps == 0 and self.function(training):
            training.stop()


@dataclass
class BestCheckpoint(Callback):
    """Write the model to ``path`` after each epoch with a new best value of ``monitor``.

    ``monitor`` and ``larger`` are as in ``Patience``. A resumed training replaces the file only when it beats the best
    epoch before, too.
    """

    path: str | os.PathLike[str]
    monitor: str | None = None
    larger: bool | None = None
    best: float | None = field(default=None, init=False)

    def on_epoch(self, training: Training) -> None:
        name, number = monitored(training.measured, self.monitor)
        if self.best is None and Path(self.path).exists():
            for epoch in training.epochs[:-1]:
                if name in epoch and better(name, epoch[name], self.best, larger=self.larger):
                    self.best = epoch[name]
        if better(name, number, self.best, larger=self.larger):
            self.best = number
            training.save(self.path)


@dataclass
class PlateauDecay(Callback):
    """Multiply the learning rate by ``factor`` after ``epochs`` epochs without an improvement of ``monitor``.

    It does not fall below ``floor``. ``monitor`` and ``larger`` are as in ``Patience``. Equal to PyTorch's
    ``ReduceLROnPlateau`` with ``patience=epochs - 1, threshold=0``.
    """

    factor: float = 0.1
    epochs: int = 10
    monitor: str | None = None
    larger: bool | None = None
    floor: float = 0.0
    best: float | None = field(default=None, init=False)
    waited: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        if not 0 < self.factor < 1 or self.epochs < 1:
            raise InvalidCall(
                "PlateauDecay: invalid factor or number of epochs",
                given=f"factor={self.factor!r}, epochs={self.epochs!r}",
                do="PlateauDecay(0.1, epochs=5)",
            )

    def on_epoch(self, training: Training) -> None:
        name, number = monitored(training.measured, self.monitor)
        if better(name, number, self.best, larger=self.larger):
            self.best, self.waited = number, 0
            return
        self.waited += 1
        if self.waited >= self.epochs:
            self.waited = 0
            training.rate = max(training.rate * self.factor, self.floor)


@dataclass
class Log(Callback):
    """Write a row for each epoch to ``path``: a ``.csv`` file, or JSON lines in a ``.jsonl`` file.

    With ``every``, JSON lines also have a row every ``every`` steps. The columns of CSV are those of the first epoch.
    An existing file is replaced, unless the training resumes: then rows are appended.
    """

    path: str | os.PathLike[str]
    every: int | None = None
    _columns: list[str] = field(default_factory=list, init=False, repr=False)

    def __post_init__(self) -> None:
        if Path(self.path).suffix.lower() not in (".csv", ".jsonl"):
            raise InvalidCall("unknown format of a log", given=os.fspath(self.path), available=".csv, .jsonl")
        if self.every is not None and (Path(self.path).suffix.lower() == ".csv" or self.every < 1):
            raise InvalidCall(
                "cannot log every few steps: the log is not a .jsonl file, or every is below 1",
                given=f"every={self.every!r}",
                do="name it *.jsonl",
            )

    def on_start(self, training: Training) -> None:
        path = Path(self.path)
        going_on = training.steps > 0 and path.exists() and path.stat().st_size > 0
        if not going_on:
            path.write_text("", encoding="utf-8")
        elif path.suffix.lower() == ".csv":
            with path.open(newline="", encoding="utf-8") as file:
                self._columns = next(csv.reader(file))

    def on_step(self, training: Training) -> None:
        if self.every is not None and training.steps % self.every == 0:
            self._add({"step": training.steps, "loss": training.loss, "rate": training.rate})

    def on_epoch(self, training: Training) -> None:
        self._add({**training.measured, "step": training.steps, "rate": training.rate})

    def _add(self, row: Mapping[str, float]) -> None:
        path = Path(self.path)
        with path.open("a", newline="", encoding="utf-8") as file:
            if path.suffix.lower() == ".jsonl":
                file.write(json.dumps(finite(row)) + "\n")
                return
            if not self._columns:
                self._columns = list(row)
                csv.writer(file).writerow(self._columns)
            csv.writer(file).writerow([row.get(name, "") for name in self._columns])


@dataclass
class TensorBoard(Callback):
    """Write the loss of every step, the learning rate and the results of epochs to ``folder``, for TensorBoard.

    Raises ``InvalidCall`` where the package ``tensorboardX`` is not installed.
    """

    folder: str | os.PathLike[str]
    _writer: Any = field(default=None, init=False, repr=False)

    def on_start(self, training: Training) -> None:
        package = import_optional("tensorboardX", "write logs of TensorBoard", install="tenonnx-training[tensorboard]")
        self._writer = package.SummaryWriter(os.fspath(self.folder))

    def on_step(self, training: Training) -> None:
        self._writer.add_scalar("loss/step", training.loss, training.steps)
        self._writer.add_scalar("rate", training.rate, training.steps)

    def on_epoch(self, training: Training) -> None:
        for name, number in training.measured.items():
            if name != "epoch":
                self._writer.add_scalar(name, number, training.steps)

    def on_end(self, training: Training) -> None:
        if self._writer is not None:
            self._writer.close()


@dataclass
class LivePlot(Callback):
    """Plot the loss of steps and the results of epochs in a notebook while the training runs.

    The plot is updated every ``every`` steps and after each epoch. Raises ``InvalidCall`` outside of IPython.
    """

    every: int = 20
    _shell: Any = field(default=None, init=False, repr=False)
    _handle: Any = field(default=None, init=False, repr=False)

    def __post_init__(self) -> None:
        if not (isinstance(self.every, int) and self.every > 0):
            raise InvalidCall("LivePlot: invalid number of steps", given=repr(self.every))

    def on_start(self, training: Training) -> None:
        try:
            self._shell = import_module("IPython.display")  # of the kernel that runs this
        except ImportError as error:
            do = "in a program, history.plot() draws the curves afterwards"
            raise InvalidCall("a live plot needs a notebook: IPython is not installed", do=do) from error
        self._handle = self._shell.display(self._page(training), display_id=True)

    def on_step(self, training: Training) -> None:
        if training.steps % self.every == 0:
            self._draw(training)

    def on_epoch(self, training: Training) -> None:
        self._draw(training)

    def on_end(self, training: Training) -> None:
        self._draw(training)

    def _draw(self, training: Training) -> None:
        if self._handle is not None:
            self._handle.update(self._page(training))

    def _page(self, training: Training) -> Any:
        """HTML of the loss of all steps and of one curve for each result of the epochs."""
        names = [name for name in dict.fromkeys(name for each in training.epochs for name in each) if name != "epoch"]
        drawn = [curve(training.losses, "loss of each step")]
        drawn += [
            curve([each[name] for each in training.epochs if name in each], f"{name} of each epoch") for name in names
        ]
        return self._shell.HTML("".join(f"<div>{each}</div>" for each in drawn if each))


@dataclass
class AfterEpoch(Callback):
    """Adapter of a function of an epoch's results to a callback; returning True ends the training."""

    function: Callable[[dict[str, float]], bool | None]

    def on_epoch(self, training: Training) -> None:
        if self.function(dict(training.measured)):
            training.stop()


def as_callback(given: Any) -> Callback:
    """A callback as it is, or a function of an epoch's results wrapped in one. Raises ``InvalidCall`` otherwise."""
    if isinstance(given, Callback):
        return given
    if isinstance(given, type) or not callable(given):
        do = f"tt.{given.__name__}(...)" if isinstance(given, type) else "lambda measured: print(measured)"
        raise InvalidCall("a callback is neither a Callback nor a function", given=repr(given)[:80], do=do)
    return AfterEpoch(given)
