"""``quantize``: quantize a float model, with a report of the error."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

import numpy as np

from tenonnx.extend import Graph, InvalidCall, Node, Op, TensorType, Value
from tenonnx.extend.backends import generate_feeds
from tenonnx.extend.transforms import LARGEST_MEASURED, infer, weight_bytes
from tenonnx_data import Data, batches_of
from tenonnx_quantized.forms.qoperator import to_qoperator
from tenonnx_quantized.tuning.accuracy import (
    Report,
    TensorError,
    errors,
    flat,
    lost,
    outputs_of,
    reached,
    relative_error,
)
from tenonnx_quantized.tuning.budget import Budget
from tenonnx_quantized.tuning.calibrate import Observed, observe, sample
from tenonnx_quantized.tuning.checkpoint import Checkpoint, fingerprint
from tenonnx_quantized.tuning.config import NothingToQuantize, QuantizeConfig
from tenonnx_quantized.tuning.constants import weights_as_constants
from tenonnx_quantized.tuning.kv_cache import caches_of, with_quantized_caches
from tenonnx_quantized.tuning.latency import OpTimes
from tenonnx_quantized.tuning.layerwise import LayerByLayer, Progress
from tenonnx_quantized.tuning.methods.bias_correction import correct_biases
from tenonnx_quantized.tuning.methods.registry import RESCALING
from tenonnx_quantized.tuning.methods.rescale import Rescaling
from tenonnx_quantized.tuning.methods.rotation import rotate
from tenonnx_quantized.tuning.metric import Metric
from tenonnx_quantized.tuning.pareto import LayerSensitivity, sqnr
from tenonnx_quantized.tuning.quantized_tensor import QuantizedTensor, encode
from tenonnx_quantized.tuning.recipe import config_of
from tenonnx_quantized.tuning.selection import QUANTIZED_OPS, activations_of, candidates, check_ops
from tenonnx_quantized.tuning.sensitivity import assign_bits, sensitivity, within_error
from tenonnx_quantized.tuning.statistics import Batch, Moments, inputs_of
from tenonnx_quantized.tuning.weights import Quantizer

__all__ = ["QuantizeConfig", "is_measured", "quantize"]


def quantize(
    graph: Graph,
    batches: Data | None = None,
    *,
    recipe: str | os.PathLike[str] | None = None,
    columns: Mapping[str, Sequence[str]] | None = None,
    batch_size: int = 32,
    backend: str = "auto",
    report: bool = False,
    metric: Metric | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
    progress: Progress | None = None,
    measure: bool = True,
    **settings: Any,
) -> tuple[Graph, Report]:
    """Quantize the weights and activations of a graph; return the new graph and a report.

    - ``batches``: data for ranges, statistics and errors, needed only by mode ``static`` and by methods that need the
      inputs of layers. An iterable of feeds, which is iterated over once, or data as for training: the path of a
      table, arrays by name, a data loader or a data set, split into batches of ``batch_size``. Labels are ignored.
    - ``columns``: names of the columns of an input.
    - ``recipe``: the name of a recipe (see ``recipes()``) or the path of a TOML file with settings.
    - ``settings``: fields of ``QuantizeConfig``, which override those of the recipe.
    - ``report``: also measure the sensitivity of each layer.
    - ``metric``: a function of a model, such as its accuracy on a test set. It is called for the float and the
      quantized model and, with ``report``, for a model per layer with only that layer quantized.
    - ``measure``: if False, no errors are measured, and the model runs only for ranges, statistics or a budget, which
      is several times faster.

    With a ``checkpoint``, the path of a folder, weights are quantized layer by layer if the method needs data. Memory
    then contains the weights of one layer, and for all batches the values that the rest of the model reads. Each layer
    is written to the folder once it is quantized, so that a killed run can resume. Models with more than 2 GiB of
    weights are quantized layer by layer even without a checkpoint, unless there is a ``report``. ``progress`` is called
    with the number of finished layers, their total number, and the name of the weights. The error of the outputs is
    not measured in this case.

    The opset of the result is at least 13; 19 with float8; 21 with blocks, 16 or 4 bits; 23 with float4; 24 with
    power-of-two scales; 25 with 2 bits. Raises ``InvalidCall`` for unknown settings, for missing data and data with
    NaN, and if nothing can be quantized.
    """
    chosen = config_of(recipe, settings)
    data = () if batches is None else batches
    feeds = _feeds(graph, batches_of(graph, data, columns=columns, batch_size=batch_size), chosen, report, measure)
    original = graph.copy()
    if chosen.initializers_as_constants:
        original.all_inputs = original.inputs
    infer(original, strict=False)
    graph = weights_as_constants(original)
    if "rotate" in chosen.methods:
        rotate(graph)
    check_ops(graph, chosen)
    nodes = candidates(graph, chosen)
    if not nodes:
        raise NothingToQuantize(
            "no op can be quantized",
            given=f"mode {chosen.mode}, ops {', '.join(chosen.ops) if chosen.ops else 'all'}",
            available=", ".join(QUANTIZED_OPS),
        )
    is_large = weight_bytes(graph) > LARGEST_MEASURED
    if checkpoint is not None or (chosen.is_layerwise and is_large and not report):
        _check_layerwise(chosen, report)
        quantized_graph, result = _layer_by_layer(original, graph, nodes, feeds, chosen, backend, checkpoint, progress)
        if metric is not None:
            result.metrics = {"float": metric(original), "quantized": metric(quantized_graph)}
        return quantized_graph, result
    caches = caches_of(graph) if chosen.kv_cache is not None else []
    moments = None
    if chosen.needs_data:
        moments = Moments(graph.copy(), list(dict.fromkeys(inputs_of(nodes).values())), backend)
    found = _observed(graph, nodes, feeds, chosen, backend, moments, caches)
    wanted = {name: list(map(flat, parts)) for name, parts in found.outputs.items()}
    notes = _notes(found, chosen)
    nodes = _finite(graph, nodes, found, notes)
    if _rescale(graph, nodes, moments, chosen) and chosen.mode == "static":
        found = _observed(graph, nodes, found.batches, chosen, backend, caches=caches)
    _set_ranges(graph, nodes, found, chosen, needed=batches is None)
    quantizer = Quantizer(graph, found.ranges, chosen, moments, inputs_of(nodes), caches)
    times = OpTimes(chosen.op_times, backend) if Budget.is_time(chosen.budget) else None
    layers, kept, bits = _chosen_bits(quantizer, nodes, found.batches, wanted, backend, report, metric, times)
    quantized_graph, quantized = quantizer.apply(kept, bits)
    if "bias-correction" in chosen.methods and moments is not None:
        correct_biases(graph, quantizer.inputs, moments, quantized)
        quantized_graph, quantized = quantizer.apply(kept, bits)
    output_errors = dict.fromkeys(wanted, 0.0)
    if kept and measure:
        output_errors = errors(outputs_of(quantized_graph, found.batches, backend), wanted)
    result = Report(
        _tensors(quantizer, kept, quantized, found) if measure else [],
        output_errors if measure else {},
        [node.name or node.op_type for node in kept],
        [node.name or node.op_type for node in nodes if node not in kept],
        *(reached(original, quantized_graph) if measure else ()),
        layers=layers,
        notes=notes,
        ranges=found.ranges,
    )
    floats = {value.name for value in graph.outputs if _is_float(value)}
    result.sqnr = {name: sqnr(error) for name, error in result.outputs.items() if name in floats}
    if not measure:
        result.notes.append("the error of the outputs was not measured")
    quantized_graph = quantizer.at_version(quantized_graph, quantized)
    if caches:
        names = {value.name for pair in caches for value in pair}
        quantized_graph = with_quantized_caches(quantized_graph, names, floats=chosen.mode != "static")
    quantized_graph = to_qoperator(quantized_graph) if chosen.form == "qoperator" else quantized_graph
    if metric is not None:
        result.metrics = {"float": metric(original), "quantized": metric(quantized_graph)}
    return quantized_graph, result


def _check_layerwise(chosen: QuantizeConfig, report: bool) -> None:
    if report:
        raise InvalidCall(
            "quantize: the sensitivity of layers is not measured layer by layer",
            given="report together with checkpoint",
            do="leave one of them out",
        )
    if not chosen.is_layerwise:
        raise InvalidCall(
            "quantize: these settings do not work layer by layer",
            given=f"mode {chosen.mode}, method {', '.join(chosen.methods) or 'rtn'}",
            available="mode weights, methods gptq, quantease, auto-round, ada-round, awq and rotate, without a budget "
            "and quantized caches",
        )


def _layer_by_layer(
    original: Graph,
    graph: Graph,
    nodes: list[Node],
    feeds: Iterable[Batch],
    chosen: QuantizeConfig,
    backend: str,
    folder: str | os.PathLike[str] | None,
    progress: Progress | None,
) -> tuple[Graph, Report]:
    batches = sample(feeds, check=True)
    moments = Moments(graph.copy(), [], backend)
    quantizer = Quantizer(graph, {}, chosen, moments, inputs_of(nodes))
    kept = Checkpoint(folder, fingerprint(nodes, batches, chosen))
    runs_on = "numpy" if backend == "auto" else backend  # numpy reads memory-mapped weights in place
    quantizer.rounded = LayerByLayer(quantizer, kept, batches, runs_on).run(progress)
    quantized_graph, quantized = quantizer.apply(nodes)
    report = Report(
        _tensors(quantizer, nodes, quantized, Observed()),
        quantized=[node.name or node.op_type for node in nodes],
        notes=["the error of the outputs was not measured"],
    )
    report.reached, report.unquantized = reached(original, quantized_graph)
    quantized_graph = quantizer.at_version(quantized_graph, quantized)
    return to_qoperator(quantized_graph) if chosen.form == "qoperator" else quantized_graph, report


def is_measured(graph: Graph, batches: Sequence[Batch], budget: float | str | None) -> bool:
    """Whether to run the model to measure output errors: for large models only with data or a budget.

    A model with an op that no installed package provides is not run.
    """
    bodies = [each.body for each in graph.functions.values() if hasattr(each, "body")]
    nodes = [node for each in (graph, *bodies) for node in each.walk()]
    if any(not isinstance(node.op, Op) and not hasattr(node.op, "body") for node in nodes):
        return False
    return bool(batches) or budget is not None or weight_bytes(graph) <= LARGEST_MEASURED


def _is_float(value: Value) -> bool:
    return isinstance(value.type, TensorType) and value.dtype.is_float


# ----- data -----------------------------------------------------------------------------------------------------------


def _feeds(
    graph: Graph, batches: Iterator[Batch], chosen: QuantizeConfig, report: bool, measure: bool
) -> Iterable[Batch]:
    """Batches for running the model: the given ones, random ones only for errors, or none for a large model.

    Raises ``InvalidCall`` if the settings need data and there is none.
    """
    first = next(batches, None)
    given = [] if first is None else [first]
    measures = report or chosen.budget is not None
    if chosen.calibrates:
        if first is None:
            what, other = "static quantization", ", or use mode dynamic"
            if chosen.mode != "static":
                what, other = f"method {', '.join(chosen.methods)}", ", or use method hqq"
            if chosen.kv_cache is not None:
                what, other = "quantization of caches", ""
            do = f"give batches of inputs (on the command line --inputs FILE){other}"
            raise InvalidCall(f"{what} got no calibration data", given="none", do=do)
    elif not measures and not (measure and is_measured(graph, given, None)):
        return []
    if first is None:
        return [generate_feeds(graph)] if measures or is_measured(graph, [], None) else []
    return chain(given, batches)


def _observed(
    graph: Graph,
    nodes: Sequence[Node],
    feeds: Iterable[Batch],
    chosen: QuantizeConfig,
    backend: str,
    moments: Moments | None = None,
    caches: Sequence[tuple[Value, Value]] = (),
) -> Observed:
    if isinstance(feeds, list) and not feeds:
        return Observed()
    names = _activations(graph, nodes, chosen)
    names += [value.name for pair in caches for value in pair if value.name not in names]
    quantized: dict[str, Any] = {"dtype": chosen.activations, "symmetric": chosen.symmetric}
    quantized["percentile"] = chosen.percentile
    return observe(
        graph, names, feeds, chosen.calibration, backend, **quantized, moments=moments, check=chosen.calibrates
    )


def _activations(graph: Graph, nodes: Sequence[Node], chosen: QuantizeConfig) -> list[str]:
    """Names of the activations that are quantized by calibrated ranges."""
    if chosen.mode != "static":
        return []
    return [value.name for value in activations_of(graph, nodes, chosen.float_outputs)]


def _set_ranges(graph: Graph, nodes: Sequence[Node], found: Observed, chosen: QuantizeConfig, *, needed: bool) -> None:
    """Override calibrated ranges by those of the settings; without data, all ``needed`` ones must be given."""
    if chosen.ranges is None:
        return
    if callable(chosen.ranges):
        found.ranges = {**found.ranges, **chosen.ranges(dict(found.ranges))}
        return
    names = _activations(graph, nodes, chosen) if needed else []
    missing = [name for name in names if name not in chosen.ranges]
    if missing:
        raise InvalidCall(
            "static quantization got neither calibration data nor the range of every activation",
            given=f"ranges without {', '.join(missing[:5])}",
            do="give batches of inputs, or the missing ranges",
        )
    found.ranges = {**found.ranges, **chosen.ranges}


def _notes(found: Observed, chosen: QuantizeConfig) -> list[str]:
    """Warnings about the calibration data."""
    if not chosen.calibrates:
        return []
    notes = [
        f'"{name}" is 0 on all calibration data: its scale is 1'
        for name, (low, high) in found.ranges.items()
        if low == high == 0
    ]
    sizes = {len(np.atleast_1d(next(iter(batch.values())))) for batch in found.batches if batch}
    if found.count == 1 and sizes == {1}:
        notes.insert(0, "calibrated on one sample: numbers of other inputs may be outside its ranges")
    return notes


def _finite(graph: Graph, nodes: list[Node], found: Observed, notes: list[str]) -> list[Node]:
    """The nodes without those with infinite activations, such as masks, which stay in floating point."""
    infinite = [name for name, ends in found.ranges.items() if not np.isfinite(ends).all()]
    if not infinite:
        return nodes
    notes += [f'"{name}" is infinite on the calibration data: its nodes stay in floating point' for name in infinite]
    return [node for node in nodes if not any(v.name in infinite for v in activations_of(graph, [node]))]


# ----- helpers --------------------------------------------------------------------------------------------------------


def _rescale(graph: Graph, nodes: Sequence[Node], moments: Moments | None, chosen: QuantizeConfig) -> bool:
    """Rescale the weights of a graph by the chosen methods; returns whether there are any."""
    names = [name for name in RESCALING if name in chosen.methods]
    for name in names:
        rescaling = Rescaling(graph, inputs_of(nodes), moments)
        RESCALING[name](rescaling, chosen)
        rescaling.finish()
    return bool(names)


def _chosen_bits(
    quantizer: Quantizer,
    nodes: list[Node],
    batches: Sequence[Batch],
    wanted: Mapping[str, list[Any]],
    backend: str,
    report: bool,
    metric: Metric | None,
    times: OpTimes | None,
) -> tuple[list[LayerSensitivity], list[Node], dict[Node, int] | None]:
    """Layer sensitivities if requested, the nodes to quantize, and their bits for a size or time budget."""
    budget = None if quantizer.config.budget is None else Budget.of(quantizer.config.budget)
    of_size = budget is not None and budget.error is None
    layers = sensitivity(quantizer, nodes, batches, wanted, backend, metric, times) if report or of_size else []
    if budget is None:
        return layers, nodes, None
    if budget.error is not None:
        return layers, within_error(quantizer, nodes, batches, wanted, budget.error, backend), None
    bits = assign_bits(layers, budget)
    return layers, [node for node in nodes if bits.get(node) != 32], bits


def _tensors(
    quantizer: Quantizer,
    nodes: Sequence[Node],
    quantized: Mapping[str, tuple[Value, QuantizedTensor]],
    found: Observed,
) -> list[TensorError]:
    """The error of each weight and, in mode ``static``, of each activation."""
    tensors = [TensorError(n, "weight", str(c.parameters.dtype), lost(v, c)) for n, (v, c) in quantized.items()]
    rounded = quantizer.parameters(nodes) if quantizer.config.mode == "static" else {}
    for value, rounding in {**rounded, **quantizer.cache_parameters()}.items():
        floats = found.first.get(value.name)
        if floats is None:
            continue
        error = relative_error(encode(floats, rounding, None).numbers(), floats)
        tensors.append(TensorError(value.name, "activation", str(rounding.dtype), error))
    return tensors
