"""Evaluation of a model on a whole data set."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any

import numpy as np

from tenonnx.extend import Graph, InvalidCall, InvalidFeed
from tenonnx.extend.transforms import copy_graph
from tenonnx_training.data import Batches, Data, samples_of
from tenonnx_training.losses import Loss, NoLoss
from tenonnx_training.measuring import Measuring
from tenonnx_training.metrics import Metric, OfClasses
from tenonnx_training.objective import Objective, as_metric
from tenonnx_training.step_graph import evaluation_graph
from tenonnx_training.tables import read_data
from tenonnx_training.updates import COUNT, SEED


def evaluate(
    graph: Graph,
    data: Data,
    metrics: Sequence[str | Metric] | Mapping[str, Sequence[str | Metric]] = (),
    *,
    loss: str | Loss | Callable[..., Any] | Mapping[str, Any] | None = None,
    loss_weights: Mapping[str, float] | None = None,
    output: str | None = None,
    labels: str | Mapping[str, str] = "labels",
    sample_weights: str | None = None,
    batch_size: int = 32,
    seed: int = 0,
    backend: str = "auto",
    **options: Any,
) -> dict[str, float]:
    """The ``loss`` and the ``metrics`` of ``graph`` in inference mode, over all of ``data``.

    ``data``, the loss, metrics and ``sample_weights`` are as in ``fit``; data are read once. Without a loss, integer
    labels are class numbers, and others have the type of the prediction. Sums and counts are accumulated over batches,
    so that the batch size does not change the results. A mean over nothing is NaN.
    """
    if loss is None and not metrics:
        raise InvalidCall("evaluate got neither a loss nor a metric", do='metrics=["accuracy"], say')
    if loss is None and sample_weights is not None:
        raise InvalidCall("sample weights were given without a loss", given=sample_weights, do="loss=...")
    graph = copy_graph(graph).infer()
    objective = Objective(loss or "", output, labels, metrics, sample_weights, loss_weights)
    several = objective.label_names if isinstance(loss, Mapping) else []
    inputs = [*(value.name for value in graph.inputs if value.name not in several), *several]
    if isinstance(data, str | os.PathLike):
        data = read_data(graph, data, loss=loss, weights=sample_weights, output=output)
    label = None if several else str(labels)
    cut = Batches(data, inputs, label, sample_weights, batch_size=batch_size, shuffle=False, seed=seed)
    batches = cut.epoch(0)
    chosen: Any = loss
    if loss is None:
        first = next(batches)
        if (found := np.asarray(first[str(label)])).dtype.kind in "OSU":
            do = "number the classes: np.unique(labels, return_inverse=True)[1]"
            raise InvalidFeed("the labels are not numbers", given=f"an array of {found.dtype}", do=do)
        given: list[Any] = [as_metric(metric)[1] for metric in metrics]
        axes = [getattr(metric, "class_axis", None) for metric in given]
        ignored = [m.ignored if isinstance(m, OfClasses) else getattr(m, "ignore_index", None) for m in given]
        axis = next((axis for axis in axes if axis is not None), None)
        chosen = NoLoss(found, [label for label in ignored if label is not None], axis)
        batches = chain([first], batches)
    used, measured = evaluation_graph(graph, replace(objective, loss=chosen), [])
    program, wanted = used.compile(backend, **options), {value.name for value in used.all_inputs}
    gathered = Measuring(measured.scalars, measured.metrics)
    noise = {SEED: np.asarray(seed, np.int64), COUNT: np.asarray(0, np.int64)}
    for batch in map(measured.given, batches):
        measured.check(batch)
        feeds = {name: array for name, array in {**noise, **batch}.items() if name in wanted}
        gathered.add(measured.measurement(program(feeds), batch, samples_of(batch)))
    return {name: value for name, value in gathered.values().items() if loss is not None or name != measured.loss}
