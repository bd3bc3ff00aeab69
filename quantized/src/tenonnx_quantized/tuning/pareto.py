"""Errors of layers, and the curve of size against error by their bits."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tenonnx.extend import Node


def finite(ratio: float) -> float | None:
    return ratio if math.isfinite(ratio) else None


def sqnr(error: float) -> float:
    """The signal-to-quantization-noise ratio in decibels of an error relative to the signal."""
    return math.inf if error == 0 else -20 * math.log10(error) if math.isfinite(error) else -math.inf


@dataclass(slots=True)
class LayerSensitivity:
    """Sensitivity of one layer: the error of the outputs, relative to their size, if only this layer is quantized.

    ``sizes`` are the total bits of its weights and scales, ``times`` its seconds for a latency budget, and ``metrics``
    the user's metric of that model, if given. All are mappings by the bits per weight; 32 is the layer in floating
    point. ``name`` is that of the weights, ``bits`` the selected bits.
    """

    name: str
    op: str
    elements: int
    node: Node
    errors: dict[int, float] = field(default_factory=dict)
    sizes: dict[int, int] = field(default_factory=dict)
    times: dict[int, float] = field(default_factory=dict)
    metrics: dict[int, float] = field(default_factory=dict)
    bits: int = 0

    @property
    def costs(self) -> Mapping[int, float]:
        """The times if measured, else the sizes."""
        return self.times or self.sizes

    @property
    def cheapest(self) -> int:
        """The number of bits with the least cost and, at equal cost, the least error."""
        return min(self.costs, key=lambda bits: (self.costs[bits], self.errors[bits]))

    def to_dict(self) -> dict[str, Any]:
        """The layer as data for JSON, with the signal-to-quantization-noise ratio for each number of bits."""
        ratios = {str(bits): sqnr(error) for bits, error in self.errors.items()}
        known = {bits: finite(ratio) for bits, ratio in ratios.items()}
        metrics = {str(bits): finite(metric) for bits, metric in self.metrics.items()}
        found = {"name": self.name, "op": self.op, "elements": self.elements, "bits": self.bits, "sqnr": known}
        times = {str(bits): seconds for bits, seconds in self.times.items()}
        return found | ({"metric": metrics} if metrics else {}) | ({"seconds": times} if times else {})


@dataclass(frozen=True, slots=True)
class ParetoPoint:
    """A point of the size-error curve.

    Average bits per weight, including scales, and the SQNR predicted from the layers' own errors; also their total
    seconds, if measured.
    """

    bits: float
    sqnr: float
    seconds: float | None = None

    def to_list(self) -> list[float | None]:
        """The numbers for JSON; None for an error of 0."""
        return [self.bits, finite(self.sqnr), *([] if self.seconds is None else [self.seconds])]


def pareto_curve(layers: Sequence[LayerSensitivity]) -> list[tuple[ParetoPoint, dict[Node, int]]]:
    """Bits of each layer from the least cost to the most, ordered by the error that each further bit saves.

    The cost is time if times were measured, else size. Errors of layers are assumed independent: their squares add up.
    Each step widens the layer that saves most for its cost (the greedy solution of the knapsack problem).
    """
    chosen = {layer.node: layer.cheapest for layer in layers}
    elements = sum(layer.elements for layer in layers)
    points = []
    while True:
        size = sum(layer.sizes[chosen[layer.node]] for layer in layers)
        noise = math.sqrt(sum(layer.errors[chosen[layer.node]] ** 2 for layer in layers))
        seconds = sum(layer.times[chosen[layer.node]] for layer in layers) if any(e.times for e in layers) else None
        points.append((ParetoPoint(size / max(elements, 1), sqnr(noise), seconds), dict(chosen)))
        steps = [
            (_saved(layer, chosen[layer.node], bits), place, bits)
            for place, layer in enumerate(layers)
            for bits, cost in layer.costs.items()
            if cost > layer.costs[chosen[layer.node]] and layer.errors[bits] <= layer.errors[chosen[layer.node]]
        ]
        if not steps:
            return points
        _, place, bits = max(steps)
        chosen[layers[place].node] = bits


def _saved(layer: LayerSensitivity, before: int, after: int) -> float:
    """The square error saved by more bits, per bit of the file or per second."""
    gain = layer.errors[before] ** 2 - layer.errors[after] ** 2
    return gain / (layer.costs[after] - layer.costs[before])
