"""Statistics of layer inputs, accumulated batch by batch in bounded memory."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

import tenonnx_standard as ops
from tenonnx.extend import Graph, InvalidCall, Node
from tenonnx.extend.backends import Program, compile_graph
from tenonnx.extend.transforms import bind, copy_graph
from tenonnx_quantized.forms.quantized_nodes import is_meaning
from tenonnx_standard.conv_kernels import columns
from tenonnx_standard.windows import Windows, windows

Array = np.ndarray[Any, Any]
Batch = Mapping[str, Any]

#: Bytes of second moments in memory at a time; further layers need more runs over the kept batches.
MOMENT_BYTES = 1 << 30

#: Maximum number of rows for which second moments are accumulated in float64.
_DOUBLE = 2048


@dataclass(frozen=True, slots=True)
class LayerInput:
    """The input of a layer as rows of a matrix: one per input feature, or per kernel position."""

    value: str
    groups: int
    rows: int
    window: Windows | None = None
    transposed: bool = False

    @property
    def nbytes(self) -> int:
        return self.groups * self.rows**2 * (8 if self.rows <= _DOUBLE else 4)

    def unfold(self, x: Array) -> Iterator[Array]:
        """Parts of the matrix, ``[groups, rows, positions]``."""
        if self.window is None:
            yield (x if self.transposed else x.reshape(-1, self.rows).T)[None]
        elif x.size:
            for _, _, part in columns(x.shape, x.dtype, self.window, joined=True)(x):
                yield part.reshape(self.groups, self.rows, -1)


def layer_input(node: Node) -> LayerInput | None:
    """The input of a Conv, Gemm or MatMul with constant weights; None if required dims are unknown."""
    (x, weights, *_), attributes = bind(node)
    shape = None if weights is None else weights.tensor.shape
    if x is None or weights is None or shape is None or not all(isinstance(d, int) for d in shape):
        return None
    sizes = [int(d) for d in shape if isinstance(d, int)]
    if is_meaning(node.op, ops.conv):
        given = {name: attributes[name] for name in ("strides", "dilations", "pads", "auto_pad")}
        window = windows("Conv", sizes[2:], **given)
        return LayerInput(x.name, attributes["group"], math.prod(sizes[1:]), window)
    if len(sizes) != 2:
        return None
    if is_meaning(node.op, ops.gemm):
        rows = sizes[1] if attributes["transB"] else sizes[0]
        return LayerInput(x.name, 1, rows, transposed=bool(attributes["transA"]))
    return LayerInput(x.name, 1, sizes[0])


@dataclass(slots=True)
class InputStatistics:
    """Moments of the rows of a layer's input.

    ``moment`` is the mean of x xᵀ, ``[groups, rows, rows]``; the means of elements and of magnitudes, and the maximum
    magnitudes, have one number per row.
    """

    moment: Array
    mean: Array
    magnitude: Array
    greatest: Array
    count: int = 0

    @staticmethod
    def of(key: LayerInput) -> InputStatistics:
        dtype = np.float64 if key.rows <= _DOUBLE else np.float32
        moment = np.zeros((key.groups, key.rows, key.rows), dtype)
        return InputStatistics(moment, *(np.zeros((key.groups, key.rows)) for _ in range(3)))

    def add(self, key: LayerInput, x: Array) -> None:
        """Add the values of a batch."""
        for given in key.unfold(x):
            part = given.astype(np.float32, copy=False)
            size = np.abs(part)
            before, self.count = self.count, self.count + part.shape[-1]
            old = before / self.count if self.count else 0.0
            for entries, summed in (
                (self.moment, np.stack([group @ group.T for group in part])),
                (self.mean, part.sum(-1, dtype=np.float64)),
                (self.magnitude, size.sum(-1, dtype=np.float64)),
            ):
                entries *= old
                entries += summed / max(self.count, 1)
            np.maximum(self.greatest, size.max(-1, initial=0.0), out=self.greatest)

    def divided(self, by: Array) -> InputStatistics:
        """The statistics of an input whose rows are divided by ``[groups, rows]``."""
        moment = self.moment / (by[:, :, None] * by[:, None, :])
        return InputStatistics(moment, self.mean / by, self.magnitude / by, self.greatest / by, self.count)


def watching(graph: Graph, names: Sequence[str], backend: str) -> Program:
    """A program that computes these values of a graph."""
    watched = copy_graph(graph)
    values = {value.name: value for value in watched.values()}
    watched.outputs = [values[name] for name in names]
    return compile_graph(watched, backend)


@dataclass(slots=True)
class Moments:
    """Statistics of layer inputs, as many at a time as fit into ``MOMENT_BYTES``.

    The first ones are accumulated during calibration; the others run the graph again on ``batches`` on request, in the
    order of the layers.
    """

    graph: Graph
    keys: Sequence[LayerInput]
    backend: str = "auto"
    batches: Sequence[Batch] = ()
    statistics: dict[LayerInput, InputStatistics] = field(default_factory=dict)
    divisors: dict[LayerInput, Array] = field(default_factory=dict)

    def begin(self, first: LayerInput | None = None) -> list[str]:
        """Allocate the statistics of the next layers; returns the names of their inputs."""
        start = 0 if first is None else self.keys.index(first)
        self.statistics, size = {}, 0
        for key in self.keys[start:]:
            size += key.nbytes
            if self.statistics and size > MOMENT_BYTES:
                break
            self.statistics[key] = InputStatistics.of(key)
        return list(dict.fromkeys(key.value for key in self.statistics))

    def add(self, found: Mapping[str, Array]) -> None:
        for key, statistics in self.statistics.items():
            statistics.add(key, np.asarray(found[key.value]))

    def of(self, key: LayerInput) -> InputStatistics:
        """The statistics of an input, with all divisions applied so far."""
        if key not in self.statistics:
            names = self.begin(key)
            program = watching(self.graph, names, self.backend)
            for batch in self.batches:
                self.add(program(batch))
        result = self.statistics[key]
        return result.divided(self.divisors[key]) if key in self.divisors else result

    def divide(self, key: LayerInput, by: Array) -> None:
        """Record a further division of an input."""
        self.divisors[key] = self.divisors.get(key, np.ones_like(by)) * by


def inputs_of(nodes: Iterable[Node]) -> dict[Node, LayerInput]:
    """The layer inputs of nodes that are layers of a matrix."""
    found = {node: layer_input(node) for node in nodes if is_meaning(node.op, ops.conv, ops.gemm, ops.matmul)}
    return {node: key for node, key in found.items() if key is not None}


def check_batch(batch: Batch, number: int) -> None:
    """Raise ``InvalidCall`` for an empty batch, or one with NaN or infinite elements."""
    if batch and not any(np.size(given) for given in batch.values()):
        raise InvalidCall(
            "a batch of the calibration data is empty",
            given=", ".join(f'"{name}" of shape {np.shape(given)} in batch {number}' for name, given in batch.items()),
            do="give batches with one sample or more",
        )
    for name, given in batch.items():
        contents = np.asarray(given)
        if contents.dtype.kind != "f":
            continue
        if bad := int(contents.size - np.isfinite(contents.astype(np.float32, copy=False)).sum()):
            raise InvalidCall(
                "the calibration data have numbers that are NaN or infinite",
                given=f'{bad} of {contents.size} numbers of "{name}" in batch {number}',
                do="remove these samples, or fill in their missing values",
            )
