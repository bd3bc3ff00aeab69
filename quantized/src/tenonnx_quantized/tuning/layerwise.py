"""Layer-by-layer quantization, for models larger than memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from tenonnx.extend import Graph, Node, static
from tenonnx.extend.backends import compile_graph
from tenonnx.extend.transforms import extract
from tenonnx_quantized.tuning.accuracy import relative_error
from tenonnx_quantized.tuning.checkpoint import Checkpoint
from tenonnx_quantized.tuning.methods.awq import awq_scale
from tenonnx_quantized.tuning.methods.rescale import Group, Rescaling
from tenonnx_quantized.tuning.quantized_tensor import QuantizedTensor
from tenonnx_quantized.tuning.statistics import Batch, InputStatistics, LayerInput
from tenonnx_quantized.tuning.weights import Quantizer

Array = np.ndarray[Any, Any]

#: Called with the number of layers done, the total number, and the name of the layer.
Progress = Callable[[int, int, str], None]


def run_in_parts(
    graph: Graph, names: Sequence[str], batches: Sequence[Batch], backend: str
) -> Iterator[tuple[str, list[Array]]]:
    """Run a graph part by part for all batches; yields the values of each name, batch by batch.

    The graph is cut after the node that computes each of them. Values that later nodes read are kept in memory.
    """
    producers = {v.name: place for place, node in enumerate(graph.nodes) for v in node.outputs if v is not None}
    last = {value.name: place for place, node in enumerate(graph.nodes) for value in node.uses}
    states = [{value.name: np.asarray(batch[value.name]) for value in graph.inputs} for batch in batches]
    start, waiting = 0, sorted(names, key=lambda name: producers.get(name, -1))
    while waiting:
        stop = producers.get(waiting[0], -1) + 1
        wanted = set(waiting)
        if stop > start:
            needed = [name for name in producers if last.get(name, -1) >= stop or name in wanted]
            _run_part(graph, graph.nodes[start:stop], states, needed, backend)
            start = stop
        name = waiting.pop(0)
        yield name, [values[name] for values in states]
        for values in states:
            for old in [old for old in values if last.get(old, -1) < start and old not in waiting]:
                del values[old]


def _run_part(
    graph: Graph, nodes: Sequence[Node], states: Sequence[dict[str, Array]], names: Sequence[str], backend: str
) -> None:
    wanted = set(names)
    results = [v.name for node in nodes for v in node.outputs if v is not None and v.name in wanted]
    read = dict.fromkeys(value.name for node in nodes for value in node.uses)
    given = [name for name in read if name in states[0]]
    program = compile_graph(extract(graph, given, results), backend)
    for values in states:
        values |= program({name: values[name] for name in given})


class LayerByLayer:
    """Rounds the weights of layers in the order in which the graph computes their inputs.

    The inputs are those of the float model. A channel scale (AWQ) is chosen as soon as the inputs of its layers are
    known; a layer waits for the scale that divides its own outputs.
    """

    def __init__(self, quantizer: Quantizer, checkpoint: Checkpoint, batches: Sequence[Batch], backend: str) -> None:
        assert quantizer.moments is not None
        self.quantizer, self.checkpoint, self.batches, self.backend = quantizer, checkpoint, batches, backend
        self.moments, self.layers = quantizer.moments, dict(quantizer.inputs)
        self.numbers = {node: number for number, node in enumerate(self.layers)}
        self.rescaling = Rescaling(quantizer.graph, self.layers, self.moments)
        self.groups = self.rescaling.groups() if "awq" in quantizer.config.methods else []
        self.quantized: dict[str, QuantizedTensor] = {}

    def run(self, progress: Progress | None) -> Mapping[str, QuantizedTensor]:
        """Round all layers; constants of the graph that scales divide are changed."""
        source, names = self.moments.graph, list(dict.fromkeys(key.value for key in self.layers.values()))
        waiting, undecided = list(self.layers), dict(enumerate(self.groups))
        for name, values in run_in_parts(source, names, self.batches, self.backend):
            for key in {key for key in self.layers.values() if key.value == name}:
                self._observe(key, values)
            for number, group in list(undecided.items()):
                if all(key in self.moments.statistics for key in group.layers.values()):
                    self._rescale(number, group)
                    del undecided[number]
            folds = {value for group in undecided.values() for value, _ in group.folds}
            for node in [n for n in waiting if self.layers[n] in self.moments.statistics and n.inputs[1] not in folds]:
                self._round(node)
                waiting.remove(node)
                if progress is not None:
                    progress(len(self.layers) - len(waiting), len(self.layers), node.inputs[1].name)  # type: ignore[union-attr]
            needed = {self.layers[node] for node in waiting}
            for key in [key for key in self.moments.statistics if key not in needed]:
                del self.moments.statistics[key]
        self.rescaling.finish()
        return self.quantized

    def _observe(self, key: LayerInput, values: Sequence[Array]) -> None:
        """Collect the statistics of an input, unless the checkpoint has all results that need them."""
        statistics = self.moments.statistics[key] = InputStatistics.of(key)
        nodes = [node for node, other in self.layers.items() if other == key]
        groups = [k for k, group in enumerate(self.groups) if any(node in group.layers for node in nodes)]
        if all(self.checkpoint.tensor(self.numbers[node]) is not None for node in nodes) and all(
            self.checkpoint.channels(k) is not None for k in groups
        ):
            return
        for contents in values:
            statistics.add(key, contents)

    def _rescale(self, number: int, group: Group) -> None:
        count = len(self.rescaling.mean_weights(next(iter(group.layers))))
        scale = self.checkpoint.channels(number, count)
        if scale is None:
            scale = awq_scale(self.rescaling, group, self.quantizer.config)
            self.checkpoint.keep_channels(number, scale)
        if np.ptp(scale) > 0:
            self.rescaling.apply(group, scale)

    def _round(self, node: Node) -> None:
        weights, number = node.inputs[1], self.numbers[node]
        assert weights is not None
        changed = self.rescaling.changed.pop(weights, None)
        tensor = self.checkpoint.tensor(number, weights.shape)
        if tensor is None:
            before = weights.data
            if changed is not None:
                self.quantizer.graph.assign({weights.name: changed.astype(weights.dtype.numpy)})
            _, quantized = self.quantizer.apply([node])
            rounded = quantized[weights.name][1]
            rounded.error = (
                relative_error(rounded.numbers(), static(weights)) if rounded.error is None else rounded.error
            )
            tensor = self.checkpoint.keep(number, rounded)
            self.quantizer.forget()
            weights._replace_fields(data=before)
        self.quantized[weights.name] = tensor
