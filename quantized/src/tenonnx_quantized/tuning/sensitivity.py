"""Sensitivity of layers, and the bits that each gets for a budget."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tenonnx.extend import InvalidCall, Node
from tenonnx_quantized.tuning.accuracy import errors, outputs_of, sqnr
from tenonnx_quantized.tuning.budget import Budget
from tenonnx_quantized.tuning.selection import weight_place
from tenonnx_quantized.tuning.statistics import Batch

if TYPE_CHECKING:
    from tenonnx_quantized.tuning.quantized_tensor import QuantizedTensor
    from tenonnx_quantized.tuning.weights import Quantizer

Wanted = Mapping[str, list[Any]]


@dataclass(slots=True)
class LayerSensitivity:
    """The error of the outputs, relative to their size, that quantizing one layer alone causes, and the bits that its
    weights then take with their scales: each by the number of bits of a weight. ``name`` is that of the weights, and
    ``bits`` the number chosen."""

    name: str
    op: str
    elements: int
    node: Node
    errors: dict[int, float] = field(default_factory=dict)
    sizes: dict[int, int] = field(default_factory=dict)
    bits: int = 0

    def to_dict(self) -> dict[str, Any]:
        """The layer as data for JSON, with the signal-to-quantization-noise ratio for each number of bits."""
        ratios = {str(bits): sqnr(error) for bits, error in self.errors.items()}
        finite = {bits: ratio if math.isfinite(ratio) else None for bits, ratio in ratios.items()}
        return {"name": self.name, "op": self.op, "elements": self.elements, "bits": self.bits, "sqnr": finite}


@dataclass(frozen=True, slots=True)
class ParetoPoint:
    """Bits of a weight on average, scales included, and the SQNR that the layers' own errors add up to."""

    bits: float
    sqnr: float


def sensitivity(
    quantizer: Quantizer, nodes: Sequence[Node], batches: Sequence[Batch], wanted: Wanted, backend: str
) -> list[LayerSensitivity]:
    """Measure what each layer with weights causes alone, for 2, 4 and 8 bits of its weights where the form has them."""
    found = []
    for node in nodes:
        if weight_place(node) is None or (weights := node.inputs[1]) is None:
            continue
        settings = quantizer.chosen.of(node)
        elements = math.prod(d for d in weights.shape if isinstance(d, int))
        layer = LayerSensitivity(weights.name, node.op_type, elements, node, bits=settings.dtype.bits)
        for bits in quantizer.widths(node):
            made, quantized = quantizer.apply([node], {node: bits})
            layer.errors[bits] = max(errors(outputs_of(made, batches, backend), wanted).values())
            layer.sizes[bits] = _bits_of(quantized[weights.name][1])
        found.append(layer)
    return found


def _bits_of(quantized: QuantizedTensor) -> int:
    """The bits of quantized values, scales and zero points."""
    elements = math.prod(quantized.quantized.shape)
    parameters = quantized.parameters
    return int(elements * parameters.dtype.bits + math.prod(parameters.scale.shape) * (32 + parameters.dtype.bits))


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


def assign_bits(layers: Sequence[LayerSensitivity], budget: Budget) -> dict[Node, int]:
    """The bits of each layer of the most accurate choice on the Pareto curve that fits into a budget of size.

    Raises ``InvalidCall`` where the fewest bits take more."""
    curve = pareto_curve(layers)
    elements = sum(layer.elements for layer in layers)
    room = budget.bits_of(elements) / max(elements, 1)
    fitting = [bits for point, bits in curve if point.bits <= room]
    if not fitting:
        least = curve[0][0].bits
        raise InvalidCall(
            "the weights do not fit into the budget",
            given=f"{room:.2f} bits for each of {elements} weights",
            do=f"give {math.ceil(least * 100) / 100} bits or more, scales included, or larger blocks",
        )
    for layer in layers:
        layer.bits = fitting[-1][layer.node]
    return fitting[-1]


def within_error(
    quantizer: Quantizer, nodes: Sequence[Node], batches: Sequence[Batch], wanted: Wanted, most: float, backend: str
) -> list[Node]:
    """As many nodes as keep the error within a bound; those whose own quantization costs most are left out first."""

    def cost(kept: Sequence[Node]) -> float:
        made, _ = quantizer.apply(kept)
        return max(errors(outputs_of(made, batches, backend), wanted).values())

    worst = sorted(nodes, key=lambda node: -cost([node]))
    fewest, end = 0, len(nodes)  # of the nodes left out: binary search, as leaving more out costs less
    while fewest < end:
        middle = (fewest + end) // 2
        if cost([node for node in nodes if node not in worst[:middle]]) <= most:
            end = middle
        else:
            fewest = middle + 1
    return [node for node in nodes if node not in worst[:fewest]]
