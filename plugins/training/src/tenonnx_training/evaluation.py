"""Measuring a model on a whole data set, nothing being trained."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, ClassVar

import numpy as np

from tenonnx.extend import DType, Graph, InvalidCall, TensorType, Value
from tenonnx.extend.transforms import copy_graph
from tenonnx_training.data import Batches, Data, samples_of
from tenonnx_training.losses import Loss
from tenonnx_training.measuring import Measuring
from tenonnx_training.metrics import Metric
from tenonnx_training.objective import Objective
from tenonnx_training.step_graph import evaluation_graph
from tenonnx_training.updates import COUNT, SEED


def evaluate(
    graph: Graph,
    data: Data,
    metrics: Sequence[str | Metric] = (),
    *,
    loss: str | Loss | Callable[..., Any] | None = None,
    output: str | None = None,
    labels: str = "labels",
    batch_size: int = 32,
    seed: int = 0,
    backend: str = "auto",
    **options: Any,
) -> dict[str, float]:
    """The ``loss`` and the ``metrics`` of ``graph`` as it is used, over all of ``data``.

    ``data`` is what ``fit`` takes; it is gone through once. Without a loss the labels are classes where they are
    integers, and else of the type of the prediction. Metrics and the loss read what they do in ``fit``.
    """
    if loss is None and not metrics:
        raise InvalidCall("there must be a loss or a metric to evaluate", do='metrics=["accuracy"], say')
    graph = copy_graph(graph).infer()
    inputs = [value.name for value in graph.inputs]
    batches = Batches(data, inputs, labels, batch_size=batch_size, shuffle=False, seed=seed).epoch(0)
    chosen: Any = loss
    if loss is None:
        first = next(batches)
        chosen, batches = _Labels(np.asarray(first[labels])), _again(first, batches)
    used, measured = evaluation_graph(graph, Objective(chosen, output, labels, metrics), [])
    program, wanted = used.compile(backend, **options), {value.name for value in used.all_inputs}
    gathered = Measuring(measured.scalars, measured.metrics)
    noise = {SEED: np.int64(seed), COUNT: np.int64(0)}
    for batch in batches:
        feeds = {name: array for name, array in {**noise, **batch}.items() if name in wanted}
        gathered.add(measured.measurement(program(feeds), batch.get(labels), samples_of(batch)))
    return {name: value for name, value in gathered.values().items() if loss is not None or name != measured.loss}


def _again(first: Mapping[str, Any], rest: Iterator[Any]) -> Iterator[Any]:
    return chain([first], rest)


class _Labels:
    """What stands for a loss where there is none: it knows the type of the labels."""

    includes: ClassVar[str] = ""

    def __init__(self, labels: Any) -> None:
        self._classes = labels.dtype.kind in "iu"
        self._rank = labels.ndim

    def __call__(self, prediction: Value, labels: Value) -> Value:
        import tenonnx_standard as ops

        return ops.reduce_sum(prediction * 0.0, keepdims=0)  # type: ignore[no-any-return]

    def labels_type(self, prediction: TensorType) -> TensorType:
        if not self._classes:
            return prediction
        shape = prediction.shape
        return TensorType(DType.int64, None if shape is None else (shape[0], *[None] * (self._rank - 1)))

    def check(self, prediction: TensorType, labels: Any) -> None:
        """Nothing is known of them."""
