"""Fit: epochs of training steps, with validation, checkpoints and a history."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tenonnx.extend import Graph, InvalidCall, TenonnxError
from tenonnx_training.config import TrainingConfig, configured, takes
from tenonnx_training.curves import page
from tenonnx_training.data import Batches, Data, samples_of
from tenonnx_training.interruption import Interruption
from tenonnx_training.progress import Progress
from tenonnx_training.schedules import rate_at
from tenonnx_training.settings import settled
from tenonnx_training.shards import is_sharded, make_folder, remove_unfinished
from tenonnx_training.state import LABELS, PREDICTIONS
from tenonnx_training.stopping import Best, Patience
from tenonnx_training.training_step import TrainingStep, check_graph


class TrainingFailed(TenonnxError):
    """Training cannot go on: the loss or a parameter is no number any more."""


@dataclass
class History:
    """What was measured: ``losses`` of every step, and of every epoch a mapping in ``epochs``.

    An epoch has its number ``epoch``, counted from 1, the means over its samples of ``loss`` and the metrics, and those
    of the validation data as ``validation_...``. ``interrupted`` tells whether the user stopped the training.
    """

    losses: list[float] = field(default_factory=list)
    epochs: list[dict[str, float]] = field(default_factory=list)
    interrupted: bool = False
    notes: list[str] = field(default_factory=list)

    def _repr_html_(self) -> str | None:
        return page(self.losses, self.epochs, [*(["interrupted"] if self.interrupted else []), *self.notes])


@takes(TrainingConfig)
def fit(graph: Graph, data: Data, *, config: TrainingConfig | None = None, **options: Any) -> History:
    """Train the variables of ``graph`` for so many more ``epochs``, and write them back to it.

    ``data`` are arrays by name, a tuple (inputs ..., labels), or an iterable of batches in either form. ``options``
    are fields of ``TrainingConfig``, given one by one or as a ``config``, and options of the backend. A graph that
    carries training state goes on from it, also in the middle of an epoch, and what is not given is as it was before.
    Ctrl-C ends the training in order.

    Raises ``TrainingFailed`` when the loss, or at the end of an epoch a parameter, is not finite: then graph and
    checkpoint are as after the last epoch before.
    """
    check_graph(graph)
    config, more = configured(TrainingConfig, config, options, "fit")
    cutting, notes = settled(graph.training_state, {"batch_size": config.batch_size, "shuffle": config.shuffle})
    counts = ((config.epochs, 0), (cutting["batch_size"], 1))
    if not all(isinstance(count, int | np.integer) and count >= least for count, least in counts):
        raise InvalidCall(
            "epochs must be an integer from 0 on, and batch_size one from 1 on",
            given=f"epochs={config.epochs!r}, batch_size={cutting['batch_size']!r}",
        )
    every = config.checkpoint_every
    if every is not None and not (isinstance(every, int | np.integer) and every >= 1 and config.checkpoint):
        raise InvalidCall(
            "checkpoint_every must be a count of batches from 1 on, beside a checkpoint",
            given=f"checkpoint_every={every!r}, checkpoint={config.checkpoint!r}",
        )
    best = None
    parts = config.checkpoint if is_sharded(config.checkpoint) else None
    if parts is not None:
        if config.patience is not None:
            raise InvalidCall(
                "a training with patience must have a checkpoint that is one file, of its best epoch",
                given=str(parts),
                do="name it *.safetensors",
            )
        make_folder(parts)
    if config.patience is not None:
        best = Best(config.patience if isinstance(config.patience, Patience) else Patience(config.patience))
    step = TrainingStep(graph, config=config, **more)
    if parts is not None:
        remove_unfinished(parts, step.steps)
    inputs = [value.name for value in graph.inputs if value.name != step.labels]
    inputs += [] if config.sample_weights is None else [config.sample_weights]
    common = {**cutting, "seed": step.seed}
    run = _Run(
        step,
        Batches(data, inputs, step.labels, **common),
        None
        if config.validation is None
        else Batches(config.validation, inputs, step.labels, **{**common, "shuffle": False}),
        config.checkpoint,
        Progress(config.progress),
    )
    run.cutting, run.every = cutting, every
    run.history.notes = [*step.notes, *notes, *run.notes()]
    try:
        with run.interruption.caught():
            for _ in range(config.epochs):
                measured = run.epoch()
                wishes = [callback(measured) for callback in config.callbacks]
                if any([*wishes, best is not None and best.tired(measured, graph)]):
                    break
            if best is not None and best.restore(graph):
                run.write()
    except KeyboardInterrupt:
        run.history.interrupted = True
        run.check()
        run.save()
    finally:
        run.progress.close()
    return run.history


class _Run:
    """A training under way: ``number`` is the epoch, ``done`` how many of its samples are trained on."""

    def __init__(
        self,
        step: TrainingStep,
        batches: Batches,
        validation: Batches | None,
        checkpoint: str | os.PathLike[str] | None,
        progress: Progress,
    ) -> None:
        self.step, self.batches, self.validation = step, batches, validation
        self.checkpoint, self.progress = checkpoint, progress
        self.number = int(step._settings.get("epoch", 0))
        self.done = int(step._settings.get("samples", 0))
        self.gathered = step.measuring(going_on=self.done > 0)
        self.history = History()
        self.cutting: dict[str, Any] = {}
        self.every: int | None = None
        self.interruption = Interruption()

    def notes(self) -> list[str]:
        """What of an epoch that goes on cannot be measured any more."""
        unknown = ", ".join(self.gathered.unknown) if self.done else ""
        return (
            [f"epoch {self.number + 1} is resumed: its {unknown} will cover the remaining samples only"]
            if unknown
            else []
        )

    def epoch(self) -> dict[str, float]:
        """Train one epoch, or what is left of one, measure it and save."""
        self.progress.begin(self.number + 1, self.batches.count(self.done))
        empty = True
        for batch in self.batches.epoch(self.number, skip=self.done):
            empty = False
            with self.interruption.whole():
                self._train(batch)
            if self.every is not None and len(self.history.losses) % self.every == 0:
                self.save(within=True)
        if empty:  # it was left after its last batch
            self._next()
            return self.epoch()
        found = {"epoch": self.number + 1, **self.gathered.values()}
        self.check()
        if self.validation is not None:
            found.update({f"validation_{name}": value for name, value in self._validate().items()})
        with self.interruption.whole():
            self._next()
            self.history.epochs.append(found)
        self.progress.end(found)
        self.save()
        return found

    def _train(self, batch: Mapping[str, Any]) -> None:
        measured = self.step.train(batch)
        loss = measured.mean(name := self.step._made.measured.loss)
        if not math.isfinite(loss) and measured.sums[name][1] != 0:  # where nothing counts, nothing is changed
            self._fail(f"the loss is {loss}")
        samples = samples_of(batch)
        self.done += samples
        self.history.losses.append(loss)
        self.gathered.add(measured)
        self.progress.advance(self.gathered.means(), samples)

    def _next(self) -> None:
        self.number, self.done, self.gathered = self.number + 1, 0, self.step.measuring()

    def check(self) -> None:
        """Raise ``TrainingFailed`` where an update has made a parameter that is no number: no loss tells yet."""
        if lost := self.step._not_finite():
            self._fail(f'"{lost[0]}" became infinite or NaN')

    def save(self, *, within: bool = False) -> None:
        """Bring graph and checkpoint up to date; ``within`` an epoch a checkpoint in parts is enough."""
        gathered = self.gathered if self.done else self.step.measuring()
        sums = {name: list(each) for name, each in gathered.sums.items()}
        arrays = {PREDICTIONS: gathered.predictions, LABELS: gathered.labels}
        measured = {name: np.concatenate(each) for name, each in arrays.items() if each}
        progress = {"measured": measured, "epoch": self.number, "samples": self.done, "sums": sums, **self.cutting}
        sharded = is_sharded(self.checkpoint)
        if not (within and sharded) or self.step._made.biases:  # whose codes are made of whole arrays
            self.step.write_back(**progress)
        if sharded:
            assert self.checkpoint is not None
            self.step.write_parts(self.checkpoint, **progress)
        else:
            self.write()

    def write(self) -> None:
        """Write the graph to the checkpoint, if there is one."""
        if self.checkpoint is not None and not is_sharded(self.checkpoint):
            self.step.source.save(self.checkpoint)

    def _validate(self) -> dict[str, float]:
        assert self.validation is not None
        gathered = self.step.measuring()
        for batch in self.validation.epoch(self.number):
            gathered.add(self.step.test(batch))
        return gathered.values()

    def _fail(self, what: str) -> None:
        losses = ", ".join(f"{loss:.4g}" for loss in self.history.losses[-3:])
        rate = rate_at(self.step.optimizer.learning_rate, max(self.step.steps - 1, 0))
        raise TrainingFailed(
            f"{what} at step {self.step.steps}",
            given=f"epoch {self.number + 1}, sample {self.done}, learning rate {rate:g}, losses {losses or 'none'}",
            available="the graph and its checkpoint as of the previous epoch",
            do="lower the learning rate, clip gradients (--clip-norm / clip_norm=1.0), or check the data for NaN",
        )
