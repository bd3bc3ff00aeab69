"""Accuracy of a quantized graph: errors of tensors and outputs, and the weights that are not quantized."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tenonnx.extend import Constant, Graph, InvalidCall, TensorType, Value, counted, html_of, static
from tenonnx.extend.backends import compile_graph
from tenonnx_quantized.forms.quantized_nodes import is_dequantize, is_quantize
from tenonnx_quantized.tuning.pareto import LayerSensitivity, ParetoPoint, finite, pareto_curve, sqnr
from tenonnx_quantized.tuning.quantized_tensor import QuantizedTensor
from tenonnx_quantized.tuning.statistics import Batch

#: Maximum number of layers in the plot of errors.
_DRAWN = 30


@dataclass(frozen=True, slots=True)
class TensorError:
    """Quantization error of a tensor, relative to its root mean square."""

    name: str
    kind: str
    dtype: str
    error: float


@dataclass(slots=True)
class Report:
    """Results of a quantization: the error of each tensor and output, and the nodes that stay in floating point.

    - ``reached``: share of the model's weight elements that are quantized;
    - ``unquantized``: weights that are not quantized, with the op types of their consumers, largest first;
    - ``sqnr``: signal-to-quantization-noise ratio of each float output, in decibels;
    - ``layers``: sensitivity of each layer, if measured;
    - ``metrics``: the user's metric of the "float" and the "quantized" model, if given;
    - ``notes``: warnings about the calibration data;
    - ``ranges``: ranges of the activations.
    """

    tensors: list[TensorError] = field(default_factory=list)
    outputs: dict[str, float] = field(default_factory=dict)
    quantized: list[str] = field(default_factory=list)
    floats: list[str] = field(default_factory=list)
    reached: float = 1.0
    unquantized: dict[str, str] = field(default_factory=dict)
    sqnr: dict[str, float] = field(default_factory=dict)
    layers: list[LayerSensitivity] = field(default_factory=list)
    metrics: dict[str, float] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    ranges: dict[str, tuple[float, float]] = field(default_factory=dict)

    def __str__(self) -> str:
        said = f"{counted(len(self.quantized), 'node')} quantized"
        worst = min(self.sqnr.items(), key=lambda each: each[1], default=None)
        return said + (f'; lowest SQNR {worst[1]:.1f} dB, of output "{worst[0]}"' if worst else "")

    def __repr__(self) -> str:
        return f"Report({self})"

    def _repr_html_(self) -> str | None:
        return html_of(self)

    def to_dict(self) -> dict[str, Any]:
        """The report as data for JSON."""
        tensors = [{"name": t.name, "kind": t.kind, "dtype": t.dtype, "error": t.error} for t in self.tensors]
        return {
            "quantized": self.quantized,
            "floats": self.floats,
            "tensors": tensors,
            "outputs": self.outputs,
            "reached": self.reached,
            "unquantized": self.unquantized,
            "sqnr": {name: finite(ratio) for name, ratio in self.sqnr.items()},
            **({"layers": [layer.to_dict() for layer in self.layers]} if self.layers else {}),
            **({"pareto": [point.to_list() for point in self.pareto]} if self.layers else {}),
            **({"metrics": {name: finite(metric) for name, metric in self.metrics.items()}} if self.metrics else {}),
            **({"notes": self.notes} if self.notes else {}),
        }

    @property
    def pareto(self) -> list[ParetoPoint]:
        """Points of the curve of size against predicted error, from the fewest bits to the most."""
        return [point for point, _ in pareto_curve(self.layers)] if self.layers else []

    def plot(self, axes: Any = None) -> Any:
        """Draw the error that quantizing each layer causes, by its bits; a new figure also shows the size-error curve.

        Returns matplotlib axes. Raises ``InvalidCall`` if the sensitivity of layers was not measured.
        """
        from tenonnx.tools import plot_axes

        if not self.layers:
            raise InvalidCall("the sensitivity of layers was not measured", do="quantize with report=True")
        own, axes = axes is None, plot_axes(axes)
        layers = sorted(self.layers, key=lambda layer: -max(layer.errors.values()))[:_DRAWN]
        for bits in sorted({bits for layer in layers for bits in layer.errors}):
            known = [(sqnr(layer.errors[bits]), k) for k, layer in enumerate(layers) if layer.errors.get(bits)]
            if known:
                axes.plot(*zip(*known, strict=True), "o", label=f"{bits} bits")
        axes.set_yticks(range(len(layers)), [f"{layer.name} ({layer.op})" for layer in layers])
        axes.invert_yaxis()
        axes.set_xlabel("SQNR of the outputs (dB)")
        axes.set_title("Error that each layer alone causes")
        axes.legend()
        if own:
            figure = axes.figure
            figure.set_size_inches(8, 4 + 0.25 * len(layers))
            figure.set_layout_engine("tight")
            places = figure.add_gridspec(2, 1, height_ratios=[1 + len(layers) / 8, 1])
            axes.set_subplotspec(places[0])
            curve = figure.add_subplot(places[1])
            points = self.pareto
            timed = points[0].seconds is not None
            across = [(point.seconds or 0.0) * 1000 if timed else point.bits for point in points]
            curve.plot(across, [finite(point.sqnr) for point in points], ".-")
            curve.set_xlabel("time of the layers (ms)" if timed else "bits of a weight, scales included")
            curve.set_ylabel("estimated SQNR (dB)")
        return axes


def outputs_of(graph: Graph, feeds: Sequence[Batch], backend: str) -> dict[str, list[Any]]:
    if not feeds:
        return {}
    program = compile_graph(graph, backend)
    result: dict[str, list[Any]] = {}
    for batch in feeds:
        for name, contents in program(batch).items():
            result.setdefault(name, []).append(flat(contents))
    return result


def flat(contents: Any) -> Any:
    return np.asarray(contents, np.float64).reshape(-1)


def lost(weights: Value, quantized: QuantizedTensor) -> float:
    return relative_error(quantized.numbers(), static(weights)) if quantized.error is None else quantized.error


def relative_error(found: Any, wanted: Any) -> float:
    """The root mean square of the difference, relative to that of the expected values, over finite ones."""
    found, wanted = np.asarray(found, np.float64), np.asarray(wanted, np.float64)
    known = np.isfinite(wanted)
    if not np.array_equal(found[~known], wanted[~known], equal_nan=True):
        return math.inf
    found, wanted = found[known], wanted[known]
    size = math.sqrt(np.mean(np.square(wanted))) if wanted.size else 0.0
    lost = math.sqrt(np.mean(np.square(found - wanted))) if wanted.size else 0.0
    return lost / size if size else lost


def errors(found: Mapping[str, list[Any]], wanted: Mapping[str, list[Any]]) -> dict[str, float]:
    return {name: relative_error(np.concatenate(found[name]), np.concatenate(parts)) for name, parts in wanted.items()}


# ----- weights that stay floats ---------------------------------------------------------------------------------------


def reached(graph: Graph, quantized: Graph) -> tuple[float, dict[str, str]]:
    """The share of weight elements that are quantized, and the remaining float weights with their consumers.

    Weights are float constants of two axes or more, initializers and Constant nodes, also in bodies and functions.
    """
    elements = sum(size for _, size, _ in _weights(graph))
    left = sorted(_weights(quantized), key=lambda each: -each[1])
    share = 1.0 - sum(size for _, size, _ in left) / elements if elements else 1.0
    return max(share, 0.0), {name: ", ".join(types) for name, _, types in left}


def _weights(graph: Graph) -> Sequence[tuple[str, int, dict[str, None]]]:
    """Each float weight: its name, number of elements, and the op types of its consumers."""
    found: dict[int, tuple[str, int, dict[str, None]]] = {}
    functions = [getattr(function, "body", None) for function in graph.functions.values()]
    bodies = [graph, *(body for body in functions if body is not None)]
    for node in (node for body in bodies for node in body.walk()):
        beside_quantized = is_quantize(node.op) or is_dequantize(node.op)
        for value in node.inputs[:1] if beside_quantized else node.inputs:
            contents = None if value is None else _contents(value)
            if value is not None and contents is not None and _is_weight(contents.type):
                size = math.prod(dim for dim in contents.type.shape or () if isinstance(dim, int))
                found.setdefault(id(contents), (value.name, size, {}))[2][node.op_type] = None
    return list(found.values())


def _contents(value: Value) -> Constant | None:
    """The contents of an initializer or Constant node."""
    producer = value.producer
    data = (
        value.data if producer is None else producer.attributes.get("value") if producer.op_type == "Constant" else None
    )
    return data if isinstance(data, Constant) else None


def _is_weight(kind: TensorType) -> bool:
    return kind.dtype.is_float and kind.dtype.bits >= 16 and len(kind.shape or ()) > 1
