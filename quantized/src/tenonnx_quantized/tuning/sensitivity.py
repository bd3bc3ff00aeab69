"""Sensitivity of layers, and their bits for a budget."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tenonnx.extend import Graph, InvalidCall, Node
from tenonnx_quantized.tuning.accuracy import errors, outputs_of
from tenonnx_quantized.tuning.budget import Budget
from tenonnx_quantized.tuning.latency import OpTimes
from tenonnx_quantized.tuning.metric import Metric
from tenonnx_quantized.tuning.pareto import LayerSensitivity, ParetoPoint, pareto_curve
from tenonnx_quantized.tuning.selection import weight_places
from tenonnx_quantized.tuning.statistics import Batch, watching

if TYPE_CHECKING:
    from tenonnx_quantized.tuning.quantized_tensor import QuantizedTensor
    from tenonnx_quantized.tuning.weights import Quantizer

Wanted = Mapping[str, list[Any]]


def sensitivity(
    quantizer: Quantizer,
    nodes: Sequence[Node],
    batches: Sequence[Batch],
    wanted: Wanted,
    backend: str,
    metric: Metric | None = None,
    times: OpTimes | None = None,
) -> list[LayerSensitivity]:
    """Measure the error of quantizing each layer only, for those of 2, 4 and 8 bits that the form supports.

    With ``times``, the latency of each layer is measured, too, also in floating point.
    """
    result = []
    given = {} if times is None or not batches else _inputs(quantizer.graph, nodes, batches[0], backend)
    for node in nodes:
        weights = [value for position, _ in weight_places(node) if (value := node.inputs[position]) is not None]
        if not weights:
            continue
        settings = quantizer.config.of(node)
        elements = sum(math.prod(d for d in value.shape if isinstance(d, int)) for value in weights)
        layer = LayerSensitivity(weights[0].name, node.op_type, elements, node, bits=settings.dtype.bits)
        for bits in quantizer.widths(node):
            changed, quantized = quantizer.apply([node], {node: bits})
            layer.errors[bits] = max(errors(outputs_of(changed, batches, backend), wanted).values())
            layer.sizes[bits] = sum(_bits_of(quantized[value.name][1]) for value in weights)
            if metric is not None:
                layer.metrics[bits] = metric(quantizer.at_version(changed, quantized))
            if times is not None:
                layer.times[bits] = times.of(node, quantizer.at_version(changed, quantized), given[node], bits)
        if times is not None:
            layer.errors[32], layer.sizes[32] = 0.0, 32 * elements
            layer.times[32] = times.of(node, quantizer.graph, given[node], 32)
        result.append(layer)
    return result


def _inputs(graph: Graph, nodes: Sequence[Node], batch: Batch, backend: str) -> dict[Node, Any]:
    """The inputs of nodes for a batch."""
    names = {node: node.inputs[0].name for node in nodes if node.inputs[0] is not None}
    values = watching(graph, list(dict.fromkeys(names.values())), backend)(batch)
    return {node: values[name] for node, name in names.items()}


def _bits_of(quantized: QuantizedTensor) -> int:
    """The total bits of quantized values, scales and zero points."""
    elements = math.prod(quantized.quantized.shape)
    parameters = quantized.parameters
    shift = parameters.dtype.bits if parameters.dtype.is_integer else 0
    return int(
        elements * parameters.dtype.bits + math.prod(parameters.scale.shape) * (parameters.scale_type.bits + shift)
    )


def assign_bits(layers: Sequence[LayerSensitivity], budget: Budget) -> dict[Node, int]:
    """The bits of each layer for a budget of size or time, the most accurate choice on the Pareto curve.

    32 means that a layer stays in floating point. Raises ``InvalidCall`` if even the least choice exceeds the budget.
    """
    curve = pareto_curve(layers)
    if budget.seconds is not None:
        return _chosen(layers, _within_time(curve, budget.seconds))
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
    return _chosen(layers, fitting[-1])


def _within_time(curve: Sequence[tuple[ParetoPoint, dict[Node, int]]], most: float) -> dict[Node, int]:
    fitting = [bits for point, bits in curve if (point.seconds or 0.0) <= most]
    if not fitting:
        least = curve[0][0].seconds or 0.0
        raise InvalidCall(
            "the layers do not fit into the budget", given=f"{most:.3g} s", do=f"give {least:.3g} s or more"
        )
    return fitting[-1]


def _chosen(layers: Sequence[LayerSensitivity], bits: dict[Node, int]) -> dict[Node, int]:
    for layer in layers:
        layer.bits = bits[layer.node]
    return bits


def within_error(
    quantizer: Quantizer, nodes: Sequence[Node], batches: Sequence[Batch], wanted: Wanted, most: float, backend: str
) -> list[Node]:
    """Return as many nodes as keep the error within a bound; the most sensitive ones are dropped first."""

    def cost(kept: Sequence[Node]) -> float:
        changed, _ = quantizer.apply(kept)
        return max(errors(outputs_of(changed, batches, backend), wanted).values())

    worst = sorted(nodes, key=lambda node: -cost([node]))
    fewest, end = 0, len(nodes)  # binary search of the number of dropped nodes
    while fewest < end:
        middle = (fewest + end) // 2
        if cost([node for node in nodes if node not in worst[:middle]]) <= most:
            end = middle
        else:
            fewest = middle + 1
    return [node for node in nodes if node not in worst[:fewest]]
