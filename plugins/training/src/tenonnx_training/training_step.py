"""A single training step, for custom training loops."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Mapping
from dataclasses import fields
from functools import partial
from typing import Any, BinaryIO

import numpy as np

from tenonnx.extend import ArrayConstant, Graph, InvalidCall, InvalidFeed, TensorType
from tenonnx.extend.backends import FeedCheck
from tenonnx.extend.formats import Report, export
from tenonnx.extend.transforms import copy_graph
from tenonnx_training import shards, tied_weights
from tenonnx_training.classes import axis_by_labels
from tenonnx_training.config import StepConfig, configured, for_another, takes
from tenonnx_training.data import samples_of
from tenonnx_training.distillation import teacher_of
from tenonnx_training.losses import Loss
from tenonnx_training.measuring import LABELS, PREDICTIONS, Measurement, Measuring
from tenonnx_training.modes import switch_to_inference
from tenonnx_training.objective import Objective, wanted_labels
from tenonnx_training.optimizers import Optimizer
from tenonnx_training.parameters import GROUPED, as_before, grouped, groups_as_before
from tenonnx_training.precision import must_cast
from tenonnx_training.recipe import Recipe
from tenonnx_training.restored_weights import folded_note, mark_parameters
from tenonnx_training.scales import following
from tenonnx_training.schedules import rate_at
from tenonnx_training.settings import described, lost, named_optimizer, resolved_settings
from tenonnx_training.state import HISTORY, not_finite, restore, settings_of, write_back
from tenonnx_training.step_graph import evaluation_graph, step_graph
from tenonnx_training.unmarked_state import adopt
from tenonnx_training.updates import COUNT, LAST, RATE, SEED, UPDATES, average_name, fill

Array = np.ndarray[Any, Any]

#: First opset version whose scatter ops can add, as needed for gradients of gathers.
_OLDEST = 16


class TrainingStep:
    """Trains ``graph`` with one batch per call. The backend keeps parameters and moments until ``write_back``.

    ``options`` are fields of ``StepConfig``, one by one or as a ``config``, and options of the backend. A graph with
    training state resumes from it and keeps its settings unless they are passed. ``notes`` are remarks for the user.
    """

    @takes(StepConfig)
    def __init__(
        self,
        graph: Graph,
        loss: str | Loss | Callable[..., Any] | None = None,
        optimizer: Optimizer | str | None = None,
        *,
        config: StepConfig | None = None,
        **options: Any,
    ) -> None:
        check_graph(graph)
        options |= {} if loss is None else {"loss": loss}
        options |= {} if optimizer is None else {"optimizer": optimizer}
        config, more = configured(StepConfig, config, options, "TrainingStep")
        adopted = adopt(graph)
        self._source, self._keep_training_form = graph, config.keep_training_form
        self._options = {"backend": config.backend, **more}
        separated = tied_weights.separate(graph, config.untie)
        how = [each.name for each in fields(Recipe)]
        kept = ("loss", "loss_weights", "output", "temperature", "teacher_weight")
        given = {name: getattr(config, name) for name in (*kept, "optimizer", "seed", *how)}
        chosen, news = resolved_settings(graph.training_state, given)
        if config.trainable is None:
            chosen["trainable"] = as_before(graph, chosen["trainable"])
        if config.groups is None:
            chosen["groups"] = groups_as_before(graph, chosen["groups"])
        if chosen["clip_norm"] == math.inf:
            chosen["clip_norm"] = None
        teacher = teacher_of(config.teacher, graph, chosen["temperature"], chosen["teacher_weight"])
        self._objective = Objective(
            chosen["loss"],
            chosen["output"],
            config.labels,
            config.metrics,
            config.sample_weights,
            chosen["loss_weights"],
            teacher,
        )
        self.optimizer = as_optimizer(chosen["optimizer"])
        self.recipe = Recipe(**{name: chosen[name] for name in how})
        self.seed = int(chosen["seed"])
        self._described = {name: described(chosen[name]) for name in (*kept, *how)}
        by_casts = must_cast(self.recipe.precision, config.backend, more)
        whole = copy_graph(graph).infer()
        mark_parameters(whole)
        self._step_graph = step_graph(whole, self._objective, self.optimizer, self.recipe, by_casts=by_casts)
        self._compile()
        self._step_graph.notes += [*adopted, *news, *separated.notes(), *folded_note(graph)]
        if teacher is not None:
            self._described |= {"temperature": teacher.temperature, "teacher_weight": teacher.weight}
            self._step_graph.notes.append(teacher.note())
        self._step_graph.notes += _notes_on_lost(chosen["loss"], self.optimizer)
        if config.optimizer is None:
            self._step_graph.notes += self._notes_on_rate()

    def _compile(self) -> None:
        """Compile the step, and load the training state of the graph."""
        self.program = self._step_graph.graph.compile(**self._options, state=self._step_graph.state)
        self._settings = restore(self._source, self._step_graph, self.optimizer, self.program.state)
        self.steps = int(self.program.state[COUNT])
        self._evaluation: Any = None
        self._copy: Graph | None = None
        ours = {*self._step_graph.state, RATE, SEED, LAST}
        self._checked = FeedCheck([value for value in self._step_graph.graph.all_inputs if value.name not in ours])
        floats = [v for v in self._checked.all_inputs if isinstance(v.type, TensorType) and v.dtype.is_float]
        self._floats = {value.name: value.dtype.numpy for value in floats}

    def _notes_on_rate(self) -> list[str]:
        rate = self.optimizer.learning_rate
        over = callable(rate) and not rate_at(rate, self.updates)
        return ["the learning rate schedule has reached zero: give a new learning rate"] if over else []

    @property
    def source(self) -> Graph:
        """The graph that is trained, as of the last ``write_back``."""
        return self._source

    @property
    def updates(self) -> int:
        """Number of updates, one for every ``accumulate`` batches. Schedules count them."""
        return self.steps if self.recipe.accumulate == 1 else int(self.program.state[UPDATES])

    @property
    def notes(self) -> list[str]:
        return self._step_graph.notes

    @property
    def labels(self) -> str | None:
        """Name of the labels in a batch, None for a loss without labels."""
        return self._step_graph.measured.labels

    @property
    def label_names(self) -> list[str]:
        """Names of all labels, one for each output with a loss."""
        return self._step_graph.measured.label_names

    @property
    def reads_classes(self) -> bool:
        """Whether labels are class numbers."""
        kinds = [value.tensor for value in self._checked.all_inputs if value.name == self.labels]
        return any(kind.dtype.is_integer for kind in kinds)

    def __call__(
        self, batch: Mapping[str, Any], *, learning_rate: float | None = None, last: bool = False
    ) -> dict[str, float]:
        """Train on one batch: the model's inputs and the labels. Returns the loss and the metrics before the update.

        With ``accumulate``, the ``last`` batch of an epoch triggers an update with the mean gradient accumulated so
        far. Raises ``InvalidFeed`` for an invalid batch, without changing anything.
        """
        return self._values(self.train(batch, learning_rate=learning_rate, last=last))

    def train(self, batch: Mapping[str, Any], *, learning_rate: float | None = None, last: bool = False) -> Measurement:
        """Train on one batch, for callers that accumulate measurements."""
        fed = self._fed(batch)
        rate = self.optimizer.learning_rate if learning_rate is None else learning_rate
        feeds = {**fed, RATE: np.asarray(rate_at(rate, self.updates), np.float32)}
        if self._step_graph.seeded:
            feeds[SEED] = np.asarray(self.seed, np.int64)
        if self.recipe.accumulate > 1:
            feeds[LAST] = np.asarray(last)
        results = self.program(feeds)
        self.steps += 1
        return self._measured(results, fed)

    def evaluate(self, batch: Mapping[str, Any]) -> dict[str, float]:
        """The loss and the metrics of a batch in inference mode, without training."""
        return self._values(self.test(batch))

    def test(self, batch: Mapping[str, Any]) -> Measurement:
        """``evaluate`` for callers that accumulate measurements."""
        fed = self._fed(batch)
        changing = [*self._step_graph.parameters, *self._step_graph.statistics]
        following_them = [name for bias in self._step_graph.biases for name in (bias.quantized, bias.scale)]
        if self._evaluation is None:
            graph, _ = evaluation_graph(self._source, self._objective, [*changing, *following_them])
            used = {value.name for value in graph.all_inputs}
            self._evaluation = (
                graph.compile(**for_another(graph, self._options)),
                [name for name in changing if name in used],
                used,
            )
        program, state_names, used = self._evaluation
        given = {SEED: np.asarray(self.seed, np.int64), COUNT: np.asarray(self.steps, np.int64), **fed}
        feeds = {name: array for name, array in given.items() if name in used}
        state, source = self.program.state, {}
        for name in state_names:
            kept = average_name(name) if self.recipe.average and name in self._step_graph.parameters else name
            source[name] = state[kept].astype(state[name].dtype, copy=False) if kept != name else state[name]
        followed = {
            name: a for name, a in following(self._source, self._step_graph.biases, source).items() if name in used
        }
        return self._measured(program({**source, **followed, **feeds}), fed)

    def measuring(self, *, going_on: bool = False) -> Measuring:
        """Accumulator for measurements of this step, resumed from the state of its graph if ``going_on``."""
        result = Measuring(self._step_graph.measured.scalars, self._step_graph.measured.metrics)
        if going_on and (state := self._source.training_state) is not None:
            result.sums |= state.settings.get("sums", {})
            measured = [name for name in state.tensors if name.startswith((PREDICTIONS, LABELS))]
            result.arrays |= {name: [state.tensors[name].array()] for name in measured}
        return result

    def _values(self, measurement: Measurement) -> dict[str, float]:
        gathered = self.measuring()
        gathered.add(measurement)
        return gathered.values()

    def _measured(self, results: Mapping[str, Any], fed: Mapping[str, Any]) -> Measurement:
        return self._step_graph.measured.measurement(results, fed, samples_of(fed))

    def write_back(self, *, measured: Mapping[str, Array] | None = None, **progress: Any) -> Graph:
        """Write the trained contents and the training state to the graph, in inference mode; returns it."""
        settings = self._progress(progress)
        write_back(self._source, self._step_graph, self.optimizer, self.program.state, settings, measured or {})
        if not self._keep_training_form:
            switch_to_inference(self._source)
        return self._source

    def snapshot(self, *, measured: Mapping[str, Array] | None = None, **progress: Any) -> Callable[[], Graph]:
        """A function that makes a separate graph with the contents that ``write_back`` would write now.

        Another thread may call it while training goes on; its graph is valid until that of the next snapshot is made.
        """
        if self._copy is None:
            self._copy = copy_graph(self._source)
            if not self._keep_training_form:
                switch_to_inference(self._copy)
        step_graph, state, settings = self._step_graph, self.program.state, self._progress(progress)
        tensors = {
            name: state[name] for name in (*step_graph.parameters, *step_graph.statistics, *step_graph.slots, COUNT)
        }
        return partial(write_back, self._copy, step_graph, self.optimizer, tensors, settings, measured or {})

    def write_parts(
        self, folder: str | os.PathLike[str], *, measured: Mapping[str, Array] | None = None, **progress: Any
    ) -> None:
        """Write a sharded checkpoint (``*.shards``): each process writes the arrays of its devices."""
        state = self.program.state
        names = [*self._step_graph.parameters, *self._step_graph.statistics, *self._step_graph.slots, COUNT]
        tensors = getattr(state, "arrays", state)
        # only arrays of JAX have parts on several devices
        lying = {name: tensors[name] if hasattr(tensors[name], "addressable_shards") else state[name] for name in names}
        settings = settings_of(self._step_graph, self.optimizer, self._progress(progress))
        source = copy_graph(self._source)
        if not self._keep_training_form:
            switch_to_inference(source)
        shards.write(folder, self.steps, source, lying, settings, measured or {})

    def _progress(self, progress: Mapping[str, Any]) -> dict[str, Any]:
        """Recipe and progress as settings of a training state."""
        plain = ("sums", HISTORY)
        settings = {name: value if name in plain else described(value) for name, value in progress.items()}
        if self.recipe.groups:
            members = grouped(self._source, self.recipe.groups)
            places = [members.get(name) for name in self._step_graph.parameters]
            settings[GROUPED] = [None if group is None else self.recipe.groups.index(group) for group in places]
        return {**self._described, "seed": self.seed, **settings}

    def graph(self) -> Graph:
        """The step as a graph, whose inputs for all that it changes have the current contents as defaults."""
        graph = copy_graph(self._step_graph.graph)
        graph.training_state = None  # the defaults include it
        contents = {name: self.program.state[name] for name in self._step_graph.state}
        contents[RATE] = np.float32(rate_at(self.optimizer.learning_rate, self.updates))
        contents[SEED] = np.int64(self.seed)
        fill(graph, {name: ArrayConstant(np.asarray(array)) for name, array in contents.items()})
        used = {value.name for node in graph.nodes for value in node.uses}
        kept = used.union(value.name for value in (*graph.all_inputs, *graph.outputs))
        graph.variables = [value for value in graph.variables if value.name in kept]
        return graph

    def export(self, path: str | os.PathLike[str] | BinaryIO, **fields: Any) -> Report:
        """Write the step as an ONNX file that any runtime can run, with defaults for all inputs that it changes.

        The metadata entry ``tenonnx.state`` maps inputs to the outputs that replace them. By default, the file has the
        model's opset version, but at least the first one with the ops that gradients need.
        """
        if self._step_graph.biases:
            raise InvalidCall(
                "an exported step cannot requantize biases while it trains their scales",
                given=", ".join(bias.quantized for bias in self._step_graph.biases),
                do="train with fit, or leave those scales out: trainable= / --trainable",
            )
        graph = self.graph()
        if fields.keys().isdisjoint(("config", "opset_version", "target")):
            fields["opset_version"] = max(graph.opsets.get("ai.onnx", 0), _OLDEST)
        graph.metadata["tenonnx.state"] = json.dumps(self._step_graph.state)
        return export(graph, path, **fields)

    def _not_finite(self) -> list[str]:
        """The variables that were finite in the graph but are no longer."""
        return not_finite(self._source, self._step_graph, self.program.state)

    def _fed(self, batch: Mapping[str, Any]) -> dict[str, Any]:
        """The arrays of a batch. Raises ``InvalidFeed`` for unknown names, and for invalid types and labels."""
        if isinstance(batch, Mapping):
            batch = self._in_floats(self._step_graph.measured.given(batch))
        try:
            checked = self._checked(batch)
        except InvalidFeed as error:
            error.do = self._advice(batch) or wanted_labels(self._step_graph.measured.cost) or error.do
            raise
        arrays = zip(self._checked.all_inputs, checked, strict=True)
        fed = {value.name: array for value, array in arrays if array is not None}
        if not samples_of(fed):
            raise InvalidFeed("the batch is empty", given="none")
        self._step_graph.measured.check(fed)
        return fed

    def _in_floats(self, batch: Mapping[str, Any]) -> dict[str, Any]:
        """Convert integers in a batch to floats where the graph takes floats and the conversion is exact."""
        cast = dict(batch)
        for name, array in batch.items():
            if isinstance(array, np.ndarray) and array.dtype.kind in "biu" and name in self._floats:
                same = array.astype(self._floats[name])
                cast[name] = same if np.array_equal(same, array) else array
        return cast

    def _advice(self, batch: Any) -> str:
        """Advice for labels of the wrong type, from the type of the prediction."""
        wanted = next((value.tensor for value in self._checked.all_inputs if value.name == self.labels), None)
        if wanted is None or not isinstance(batch, Mapping) or self.labels not in batch:
            return ""
        labels, classes = (
            np.asarray(batch[self.labels]),
            wanted.dtype.is_integer and self._step_graph.measured.prediction is not None,
        )
        kind = self._step_graph.measured.prediction
        along_last = kind is not None and kind.shape is not None and len(kind.shape) > 2
        if classes and along_last and axis_by_labels(kind.shape, labels.shape, None):  # type: ignore[union-attr,arg-type]
            return "if the classes are along the last axis, set class_axis=-1 of the loss / --class-axis -1"
        if classes and wanted.shape is not None and labels.ndim == len(wanted.shape) + 1:
            return "give the number of each class: labels.argmax(axis=1) of one-hot rows, labels[:, 0] of a column"
        if classes and labels.dtype.kind in "OSU":
            return "number the classes: np.unique(labels, return_inverse=True)[1]"
        return ""


def check_graph(graph: Any) -> None:
    if not isinstance(graph, Graph):
        raise InvalidCall("the model is not a graph", given=repr(graph)[:80], do="tx.load(path) reads one from a file")


def _notes_on_lost(*settings: Any) -> list[str]:
    names = filter(None, (lost(described(each)) for each in settings))
    return [f"files do not store {own}: give it again to resume" for own in names]


def as_optimizer(optimizer: Optimizer | str | None) -> Optimizer:
    """An optimizer by name, with default settings, or the object itself."""
    if optimizer is None or isinstance(optimizer, str):
        return named_optimizer(optimizer, None, {})
    if isinstance(optimizer, type) or not hasattr(optimizer, "scalars"):
        suggestion = f"tt.{optimizer.__name__}()" if isinstance(optimizer, type) else "tt.Adam(1e-3), say"
        raise InvalidCall("the optimizer is neither a name nor an object", given=repr(optimizer), do=suggestion)
    return optimizer
