"""Fit: epochs of training steps, with validation, checkpoints and a history."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from itertools import repeat
from typing import Any

import numpy as np

from tenonnx.extend import Graph, InvalidCall, TenonnxError, counted
from tenonnx_training.callbacks import Callback, Training, as_callback
from tenonnx_training.checkpoint_writer import CheckpointWriter
from tenonnx_training.config import TrainingConfig, configured, takes
from tenonnx_training.curves import page, plot_curves
from tenonnx_training.data import Batch, Batches, Data, samples_of
from tenonnx_training.data_checks import check_samples
from tenonnx_training.interruption import Interruption
from tenonnx_training.progress import Progress
from tenonnx_training.schedules import rate_at
from tenonnx_training.settings import resolved_settings
from tenonnx_training.shards import is_sharded, make_folder, remove_unfinished
from tenonnx_training.state import HISTORY
from tenonnx_training.stopping import Best, Patience
from tenonnx_training.tables import read_files
from tenonnx_training.training_step import TrainingStep, check_graph

#: The training diverges where the loss exceeds DIVERGED times the first loss, or times LEAST if that is larger.
DIVERGED, LEAST = 1000.0, 0.1

#: Ops with which a model handles missing numbers.
_MISSING = ("IsNaN", "Imputer")


class TrainingFailed(TenonnxError):
    """The training diverged: the loss is not finite or a thousand times the first, or a parameter is not finite."""


class CheckpointFailed(TenonnxError):
    """A checkpoint cannot be written; the training goes on."""

    def __init__(self, path: str | os.PathLike[str], error: Exception) -> None:
        given = str(getattr(error, "given", "") or error)
        do = "free some space, or name another file: checkpoint= (--checkpoint)"
        super().__init__(f'cannot write the checkpoint "{os.fspath(path)}"', given=given, do=do)


@dataclass
class History:
    """Measurements: ``losses`` of all steps, and a mapping for every epoch in ``epochs``.

    An epoch has ``epoch``, counted from 1, the means over its samples of ``loss`` and the metrics, and the validation
    results as ``validation_...``. The first ``resumed`` epochs belong to the training before. ``interrupted`` is
    whether the user stopped the training; ``checkpoint_error`` is the reason why the last checkpoint was not written.
    """

    losses: list[float] = field(default_factory=list)
    epochs: list[dict[str, float]] = field(default_factory=list)
    interrupted: bool = False
    notes: list[str] = field(default_factory=list)
    resumed: int = 0
    checkpoint_error: CheckpointFailed | None = None

    def to_dict(self) -> dict[str, Any]:
        """The history as data for JSON."""
        return {
            "losses": self.losses,
            "epochs": self.epochs,
            "interrupted": self.interrupted,
            "notes": self.notes,
            "resumed": self.resumed,
            "checkpoint_error": None if self.checkpoint_error is None else str(self.checkpoint_error.what),
        }

    def plot(self, axes: Any = None) -> Any:
        """Plot the loss of each step, and losses and metrics of epochs; returns the axes of matplotlib."""
        return plot_curves(self.losses, self.epochs, self.resumed, axes)

    def __str__(self) -> str:
        last = ", ".join(f"{name} {value:.4g}" for name, value in (self.epochs or [{}])[-1].items() if name != "epoch")
        said = f"{counted(len(self.epochs), 'epoch')}, {counted(len(self.losses), 'step')}"
        return "; ".join(part for part in (said, last, "interrupted" if self.interrupted else "") if part)

    def __repr__(self) -> str:
        return f"History({self})"

    def _repr_html_(self) -> str | None:
        return page(self.losses, self.epochs, [*(["interrupted"] if self.interrupted else []), *self.notes])


@takes(TrainingConfig)
def fit(graph: Graph, data: Data, *, config: TrainingConfig | None = None, **options: Any) -> History:
    """Train the variables of ``graph`` for ``epochs`` more epochs, and write them back to it.

    ``data`` are arrays by name, a tuple (inputs ..., labels), an iterable of batches in either form, a function that
    returns one for each epoch, a data set indexed by sample, or a path as in ``read_data``. ``options`` are fields of
    ``TrainingConfig``, one by one or as a ``config``, and options of the backend. A graph with training state resumes
    from it, also in the middle of an epoch, and keeps its settings unless they are passed. Ctrl-C ends the training
    cleanly.

    Raises ``TrainingFailed`` when the loss is not finite or a thousand times the first, unless ``allow_divergence``,
    and when a parameter is not finite at the end of an epoch. Graph and checkpoint are then as after the last good
    epoch. A checkpoint that cannot be written is a warning, and the training goes on.
    """
    check_graph(graph)
    config, more = configured(TrainingConfig, config, options, "fit")
    data, config = read_files(graph, data, config)
    cutting, notes = resolved_settings(
        graph.training_state, {"batch_size": config.batch_size, "shuffle": config.shuffle}
    )
    counts = ((config.epochs, 0), (cutting["batch_size"], 1))
    if not all(isinstance(count, int | np.integer) and count >= least for count, least in counts):
        raise InvalidCall(
            "invalid epochs or batch_size",
            given=f"epochs={config.epochs!r}, batch_size={cutting['batch_size']!r}",
        )
    every = config.checkpoint_every
    if every is not None and not (isinstance(every, int | np.integer) and every >= 1 and config.checkpoint):
        raise InvalidCall(
            "invalid checkpoint_every",
            given=f"checkpoint_every={every!r}, checkpoint={config.checkpoint!r}",
        )
    best = None
    parts = config.checkpoint if is_sharded(config.checkpoint) else None
    if parts is not None:
        if config.patience is not None:
            raise InvalidCall(
                "patience was given with a checkpoint of several files",
                given=str(parts),
                do="name it *.safetensors",
            )
        make_folder(parts)
    if config.patience is not None:
        best = Best(config.patience if isinstance(config.patience, Patience) else Patience(config.patience))
    step = TrainingStep(graph, config=config, **more)
    if parts is not None:
        remove_unfinished(parts, step.steps)
    inputs = [value.name for value in graph.inputs if value.name not in step.label_names]
    inputs += step.label_names if step.labels is None else []
    reads = partial(Batches, inputs=inputs, labels=step.labels, weights=config.sample_weights)
    common = {**cutting, "seed": step.seed}
    run = _Run(
        step,
        reads(data, **common),
        None if config.validation is None else reads(config.validation, **{**common, "shuffle": False}),
        config.checkpoint,
        Progress(config.progress),
    )
    run.cutting, run.every, run.allow_divergence = cutting, every, config.allow_divergence
    run.callbacks = [as_callback(each) for each in config.callbacks]
    for batches in (run.batches, run.validation):
        if batches is not None:
            check_samples(
                batches.arrays,
                labels=step.labels,
                classes=step.reads_classes,
                weights=config.sample_weights,
                missing=any(node.op_type in _MISSING for node in graph.walk()),
                check=step._step_graph.measured.check,
            )
    run.history.notes = [*step.notes, *notes, *run.updates_note(config.epochs), *run.notes()]
    try:
        with run.interruption.caught():
            run.call("on_start")
            for left in reversed(range(config.epochs)):
                measured = run.epoch(left)
                if run.training.stopped or (best is not None and best.is_exhausted(measured, graph)):
                    break
            if best is not None and best.restore(graph):
                run.write()
    except KeyboardInterrupt:
        run.history.interrupted = True
        run.check()
        run.save()
    finally:
        run.progress.close()
        run.finish()
        run.call("on_end")
    return run.history


def _with_last(batches: Iterable[Batch]) -> Iterator[tuple[Batch, bool]]:
    """Each batch with whether it is the last; a batch is yielded before an error of reading the next one."""
    source = iter(batches)
    waiting = next(source, None)
    while waiting is not None:
        try:
            following = next(source, None)
        except BaseException:
            yield waiting, False
            raise
        yield waiting, following is None
        waiting = following


def _numbers(measured: Mapping[str, float]) -> dict[str, float]:
    """Results of an epoch as Python floats; user-defined metrics may return numpy scalars."""
    return {name: float(number) for name, number in measured.items() if name != "epoch"}


class _Run:
    """A running training, after ``samples`` samples of the epoch ``number``."""

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
        self.samples = int(step._settings.get("samples", 0))
        self.gathered = step.measuring(going_on=self.samples > 0)
        earlier = [dict(each) for each in step._settings.get(HISTORY, ())]
        self.history = History(epochs=earlier, resumed=len(earlier))
        self.cutting: dict[str, Any] = {}
        self.every: int | None = None
        self.allow_divergence = False
        self.interruption = Interruption()
        self.training = Training(step, self._write_back, losses=self.history.losses, epochs=self.history.epochs)
        self.callbacks: list[Callback] = []
        self.writer = CheckpointWriter()

    def updates_note(self, epochs: int) -> list[str]:
        """A note with the number of updates of the run, where the number of batches is known."""
        batches = self.batches.count(0)
        if batches is None:
            return []
        updates = epochs * -(-batches // self.step.recipe.accumulate)
        whole = f"{batches:,} batch" if batches == 1 else f"{batches:,} batches"
        return [f"{counted(epochs, 'epoch')} of {whole}: {counted(updates, 'update')}"]

    def notes(self) -> list[str]:
        """Notes on a resumed epoch: unmeasurable metrics, and data that may continue at another sample."""
        if not self.samples:
            return []
        result = []
        if unknown := ", ".join(self.gathered.unknown):
            result.append(f"epoch {self.number + 1} is resumed: its {unknown} will cover the remaining samples only")
        if not self.batches.repeats:
            result.append(
                f"epoch {self.number + 1} is resumed after {self.samples} samples, which were trained on if data comes "
                "in the same order; a loader that shuffles by itself needs a method set_epoch for that"
            )
        return result

    def epoch(self, left: int = 0) -> dict[str, float]:
        """Train one epoch, or the remainder of one, measure it and save; ``left`` epochs follow."""
        whole = self.batches.count(0)
        self.progress.begin(self.number + 1, self.batches.count(self.samples), None if whole is None else left * whole)
        empty = True
        batches = self.batches.epoch(self.number, skip=self.samples)
        gathers = self.step.recipe.accumulate > 1
        for batch, last in _with_last(batches) if gathers else zip(batches, repeat(False)):
            empty = False
            with self.interruption.whole():
                self._train(batch, last=last)
            self.call("on_step")
            if self.training.stopped:
                self.check()
                self.save()
                return {"epoch": self.number + 1, **self.gathered.means()}
            if self.every is not None and len(self.history.losses) % self.every == 0:
                self.save(within=True)
        result = self._end_epoch()
        return self.epoch(left) if empty else result  # the checkpoint was written after the last batch

    def _end_epoch(self) -> dict[str, float]:
        """Measure the finished epoch, and save."""
        result = {"epoch": self.number + 1, **self.gathered.values()}
        self.check()
        if self.validation is not None:
            result.update({f"validation_{name}": value for name, value in self._validate().items()})
        with self.interruption.whole():
            self._next()
            self.history.epochs.append(result)
        self.progress.end(result)
        self.save()
        self.training.measured = result
        self.call("on_epoch")
        if self.training.rate_changed:
            self.training.rate_changed = False
            self.save()
        return result

    def call(self, hook: str) -> None:
        """Call a hook of all callbacks."""
        for callback in self.callbacks:
            getattr(callback, hook)(self.training)

    def _train(self, batch: Mapping[str, Any], *, last: bool) -> None:
        measured = self.step.train(batch, last=True) if last else self.step.train(batch)
        loss = measured.mean(name := self.step._step_graph.measured.loss)
        counts = measured.sums[name][1] != 0  # where all labels are ignored, there is no update
        if counts and not self.allow_divergence and self._diverges(loss):
            self._fail(f"the loss is {loss:.4g}")
        samples = samples_of(batch)
        self.samples += samples
        self.history.losses.append(loss)
        self.gathered.add(measured)
        self.training.epoch, self.training.loss = self.number + 1, loss
        if self.callbacks:
            self.training.measured = self.gathered.means()
        self.progress.advance(self.gathered.means(), samples)

    def _diverges(self, loss: float) -> bool:
        first = next(filter(math.isfinite, self.history.losses), loss)
        return not math.isfinite(loss) or abs(loss) > DIVERGED * max(abs(first), LEAST)

    def _next(self) -> None:
        self.number, self.samples, self.gathered = self.number + 1, 0, self.step.measuring()

    def check(self) -> None:
        """Raise ``TrainingFailed`` where an update made a parameter NaN or infinite, which no loss shows yet."""
        if lost := self.step._not_finite():
            self._fail(f'"{lost[0]}" became infinite or NaN')

    def _write_back(self) -> Graph:
        """The current graph with the progress of the training."""
        return self.step.write_back(**self._reached())

    def _reached(self) -> dict[str, Any]:
        """Progress of the training, with the measurements of the epoch so far."""
        gathered = self.gathered if self.samples else self.step.measuring()
        sums = {name: list(each) for name, each in gathered.sums.items()}
        measured = {name: np.concatenate(each) for name, each in gathered.arrays.items()}
        epochs = [{"epoch": each["epoch"], **_numbers(each)} for each in self.history.epochs]
        reached = {"epoch": self.number, "samples": self.samples, "sums": sums, HISTORY: epochs}
        return {"measured": measured, **reached, **self.cutting}

    def save(self, *, within: bool = False) -> None:
        """Write graph and checkpoint; ``within`` an epoch only the checkpoint, in the background.

        Shards are written synchronously, since every process writes its own.
        """
        self.finish()
        progress = self._reached()
        sharded = is_sharded(self.checkpoint)
        if within and not sharded and self.checkpoint is not None:
            snapshot, path = self.step.snapshot(**progress), self.checkpoint
            self.writer.start(lambda: snapshot().save(path))
            return
        if not (within and sharded) or self.step._step_graph.biases:  # biases are quantized from whole arrays
            self.step.write_back(**progress)
        if sharded:
            assert self.checkpoint is not None
            self._write(partial(self.step.write_parts, self.checkpoint, **progress))
        else:
            self.write()

    def write(self) -> None:
        """Write the graph to the checkpoint file, if there is one."""
        if self.checkpoint is not None and not is_sharded(self.checkpoint):
            self._write(partial(self.step.source.save, self.checkpoint))

    def finish(self) -> None:
        """Wait for the checkpoint that is being written."""
        if self.writer.is_writing:
            self._write(self.writer.wait)

    def _write(self, write: Callable[[], object]) -> None:
        """Write a checkpoint; warn at the first failure, and at the first one after a success."""
        assert self.checkpoint is not None
        try:
            write()
            self.history.checkpoint_error = None
        except (TenonnxError, OSError) as error:
            known = self.history.checkpoint_error is not None
            self.history.checkpoint_error = failed = CheckpointFailed(self.checkpoint, error)
            if not known:
                self.progress.warn(f"{failed}\nthe training goes on")

    def _validate(self) -> dict[str, float]:
        assert self.validation is not None
        gathered = self.step.measuring()
        for batch in self.validation.epoch(self.number):
            gathered.add(self.step.test(batch))
        return gathered.values()

    def _fail(self, what: str) -> None:
        losses = ", ".join(f"{loss:.4g}" for loss in self.history.losses[-3:])
        rate = rate_at(self.step.optimizer.learning_rate, max(self.step.updates - 1, 0))
        raise TrainingFailed(
            f"{what} at step {self.step.steps}",
            given=f"epoch {self.number + 1}, sample {self.samples}, learning rate {rate:g}, losses {losses or 'none'}",
            available="the graph and its checkpoint as of the previous epoch",
            do="lower the learning rate, clip gradients with clip_norm=1 (--clip-norm 1), check the data for NaN, or "
            "go on with allow_divergence=True (--allow-divergence)",
        )
