"""Errors of layers, and the curve of the size and the error that their bits give."""

from __future__ import annotations

import math
from collections.abc import Sequence
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
    """Sensitivity of one layer: the error of the outputs, relative to their size, if only this layer is quantized, and
    the bits that its weights and scales take, and the user's metric of that model where one was given. All are mappings
    by the number of bits of a weight. ``name`` is that of the weights, and ``bits`` the number chosen."""

    name: str
    op: str
    elements: int
    node: Node
    errors: dict[int, float] = field(default_factory=dict)
    sizes: dict[int, int] = field(default_factory=dict)
    metrics: dict[int, float] = field(default_factory=dict)
    bits: int = 0

    def to_dict(self) -> dict[str, Any]:
        """The layer as data for JSON, with the signal-to-quantization-noise ratio for each number of bits."""
        ratios = {str(bits): sqnr(error) for bits, error in self.errors.items()}
        known = {bits: finite(ratio) for bits, ratio in ratios.items()}
        metrics = {str(bits): finite(metric) for bits, metric in self.metrics.items()}
        found = {"name": self.name, "op": self.op, "elements": self.elements, "bits": self.bits, "sqnr": known}
        return found | ({"metric": metrics} if metrics else {})


@dataclass(frozen=True, slots=True)
class ParetoPoint:
    """Bits of a weight on average, scales included, and the SQNR that the layers' own errors add up to."""

    bits: float
    sqnr: float


def pareto_curve(layers: Sequence[LayerSensitivity]) -> list[tuple[ParetoPoint, dict[Node, int]]]:
    """Bits of each layer from the fewest to the most, by the error that each further bit saves.

    The errors of layers are taken for independent: their squares add up. Each step widens the layer that saves most
    for its size (the greedy solution of the knapsack problem)."""
    chosen = {layer.node: min(layer.sizes) for layer in layers}
    elements = sum(layer.elements for layer in layers)
    points = []
    while True:
        size = sum(layer.sizes[chosen[layer.node]] for layer in layers)
        noise = math.sqrt(sum(layer.errors[chosen[layer.node]] ** 2 for layer in layers))
        points.append((ParetoPoint(size / max(elements, 1), sqnr(noise)), dict(chosen)))
        steps = [
            (_saved(layer, chosen[layer.node], bits), place, bits)
            for place, layer in enumerate(layers)
            for bits in layer.sizes
            if bits > chosen[layer.node]
        ]
        if not steps:
            return points
        _, place, bits = max(steps)
        chosen[layers[place].node] = bits


def _saved(layer: LayerSensitivity, before: int, after: int) -> float:
    """The square error that more bits save, for each bit of the file."""
    gain = layer.errors[before] ** 2 - layer.errors[after] ** 2
    return gain / max(layer.sizes[after] - layer.sizes[before], 1)
