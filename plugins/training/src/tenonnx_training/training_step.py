"""One training step at a time, for loops of one's own."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from typing import Any, BinaryIO

import numpy as np

from tenonnx.errors import InvalidCall
from tenonnx.extend import Graph, TensorType
from tenonnx.formats.export import Report, export
from tenonnx.graph.values import ArrayConstant
from tenonnx.op.graph_inference import infer
from tenonnx.transforms.rewrite import copy_graph
from tenonnx_training.losses import Loss
from tenonnx_training.optimizers import OPTIMIZERS, Adam, Optimizer
from tenonnx_training.schedules import rate_at
from tenonnx_training.state import restore, write_back
from tenonnx_training.step import COUNT, RATE, SEED, Objective, as_loss, evaluation_graph, step_graph


class TrainingStep:
    """Trains ``graph`` by one batch a call. Parameters and moments stay with the backend until ``write_back``.

    ``objective`` is what to minimise, or a loss alone. ``trainable`` is a pattern of variable names, or several.
    ``seed`` decides all random numbers. A graph that carries training state goes on from it. ``notes`` say what a
    reader of the file should know.
    """

    def __init__(
        self,
        graph: Graph,
        objective: Objective | Loss | str | Any,
        optimizer: Optimizer | str | None = None,
        *,
        trainable: str | Sequence[str] | None = None,
        clip_norm: float | None = None,
        loss_scale: float = 1.0,
        frozen_statistics: bool = False,
        seed: int | None = None,
        backend: str = "auto",
        **options: Any,
    ) -> None:
        infer(graph)
        self.source = graph
        self.objective = objective if isinstance(objective, Objective) else Objective(objective)
        self.optimizer = as_optimizer(optimizer)
        self.made = step_graph(
            graph,
            self.objective,
            self.optimizer,
            trainable=trainable,
            clip_norm=clip_norm,
            loss_scale=loss_scale,
            frozen_statistics=frozen_statistics,
        )
        self.program = self.made.graph.compile(backend, state=self.made.state, **options)
        self.settings = restore(graph, self.made, self.optimizer, self.program.state)
        self.seed = int(self.settings.get("seed", 0)) if seed is None else seed
        self.steps = int(self.program.state[COUNT])
        self._options = {"backend": backend, **options}
        self._evaluation: Any = None
        self._check_target = self._target_check()

    @property
    def notes(self) -> list[str]:
        return self.made.notes

    @property
    def target(self) -> str | None:
        """The name under which a batch holds the target, None if the loss needs none."""
        return self.made.target

    def __call__(self, batch: Mapping[str, Any], *, learning_rate: float | None = None) -> dict[str, float]:
        """Train by one batch: the model's inputs and the target. Returns the loss and the metrics before the update.

        Raises ``InvalidFeed`` for a batch that does not fit; then nothing is changed.
        """
        self._check_target(batch)
        rate = rate_at(self.optimizer.learning_rate, self.steps) if learning_rate is None else learning_rate
        feeds = {**batch, RATE: np.float32(rate)}
        if self.made.seeded:
            feeds[SEED] = np.int64(self.seed)
        results = self.program(feeds)
        self.steps += 1
        return {name: float(results[name].reshape(())) for name in (self.made.loss, *self.made.metrics)}

    def evaluate(self, batch: Mapping[str, Any]) -> dict[str, float]:
        """The loss and the metrics of a batch by the model as it will be used, nothing being trained."""
        self._check_target(batch)
        changing = [*self.made.parameters, *self.made.statistics]
        if self._evaluation is None:
            graph = evaluation_graph(self.source, self.objective, changing).graph
            used = {value.name for value in graph.formals}
            self._evaluation = graph.compile(**self._options), [name for name in changing if name in used], used
        program, held, used = self._evaluation
        feeds = {name: array for name, array in batch.items() if name in used}
        results = program({**{name: self.program.state[name] for name in held}, **feeds})
        return {name: float(results[name].reshape(())) for name in (self.made.loss, *self.made.metrics)}

    def write_back(self, **progress: Any) -> Graph:
        """Give the graph the trained contents, and the training state; returns the graph."""
        write_back(self.source, self.made, self.optimizer, self.program.state, {"seed": self.seed, **progress})
        return self.source

    def graph(self) -> Graph:
        """The whole step as a graph, with defaults as they are now for all that it changes."""
        graph = copy_graph(self.made.graph)
        contents = {name: self.program.state[name] for name in self.made.state}
        contents[RATE] = np.float32(rate_at(self.optimizer.learning_rate, self.steps))
        contents[SEED] = np.int64(self.seed)
        listed = {value.name for value in graph.variables}
        for value in graph.formals:
            if value.name in contents:
                value.data = ArrayConstant(np.asarray(contents[value.name]))
                graph.variables += [value] if value.name not in listed else []
        return graph

    def export(self, path: str | os.PathLike[str] | BinaryIO, **fields: Any) -> Report:
        """Write the whole step as an ONNX file, which any runtime can drive, with defaults for all that it changes.

        Its metadata says which output replaces which input (``tenonnx.state``).
        """
        graph = self.graph()
        graph.metadata["tenonnx.state"] = json.dumps(self.made.state)
        return export(graph, path, **fields)

    def _target_check(self) -> Any:
        name = self.made.target
        if name is None:
            return lambda batch: None
        loss = as_loss(self.objective.loss, self.source)
        kind = next(v.type for v in self.made.graph.formals if v.name == name)
        prediction = self.made.prediction
        assert isinstance(kind, TensorType)
        return lambda batch: loss.check(prediction, np.asarray(batch[name])) if name in batch else None


def as_optimizer(optimizer: Optimizer | str | None) -> Optimizer:
    """An optimizer by name, with its default settings, or the object itself."""
    if optimizer is None:
        return Adam()
    if isinstance(optimizer, str):
        if optimizer not in OPTIMIZERS:
            raise InvalidCall(f'no optimizer is called "{optimizer}"', available=", ".join(OPTIMIZERS))
        return OPTIMIZERS[optimizer]()
    return optimizer
