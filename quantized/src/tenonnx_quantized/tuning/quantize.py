"""``quantize``: quantize a float model, with a report of the error."""

from __future__ import annotations

import fnmatch
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

import tenonnx_standard as ops
from tenonnx.extend import DType, Graph, InvalidCall, Node, Op, TensorType, Value, did_you_mean, moves_data, static
from tenonnx.extend.backends import generate_feeds
from tenonnx.extend.transforms import LARGEST_MEASURED, infer, retarget, weight_bytes
from tenonnx_data import Data, batches_of
from tenonnx_quantized.forms.qoperator import LARGEST_BIAS, to_qoperator
from tenonnx_quantized.forms.quantized_nodes import is_meaning
from tenonnx_quantized.tuning.accuracy import (
    Report,
    TensorError,
    errors,
    flat,
    lost,
    outputs_of,
    reached,
    relative_error,
    sqnr,
)
from tenonnx_quantized.tuning.calibrate import METHODS, Batch, Observed, observe
from tenonnx_quantized.tuning.constants import weights_as_constants
from tenonnx_quantized.tuning.insert import Insertions, insert
from tenonnx_quantized.tuning.modes import MODES
from tenonnx_quantized.tuning.quantized_tensor import (
    SEARCHES,
    Array,
    QuantizationParameters,
    QuantizedTensor,
    by_channel,
    encode,
    in_blocks,
    in_blocks_of_rows,
    parameters,
)

#: From so many bytes on, a matrix is quantized in parts.
LARGE = 1 << 24

FORMS = ("qdq", "qoperator")

_ACTIVATION_TYPES = ("uint8", "int8", "uint16", "int16", "float8e4m3fn")
_WEIGHT_TYPES: dict[str, tuple[str, ...]] = {
    "static": (*_ACTIVATION_TYPES, "int4", "uint4"),
    "dynamic": ("int8", "uint8"),
    "weights": (),
}

#: Ops with weights, and the position and the axis of channels of these.
_WEIGHTED: dict[Op, tuple[int, int]] = {ops.conv: (1, 0), ops.matmul: (1, -1), ops.gemm: (1, 1)}

#: From so many rows on, a table is quantized that rows are taken of.
_LONG = 32

#: Ops whose activations a static quantization rounds, too.
_ACTIVATED = (ops.add, ops.mul, ops.average_pool, ops.global_average_pool, ops.concat, ops.sigmoid)

#: The types of ops that can be quantized in some mode.
_QUANTIZED = [op.name for op in (*_WEIGHTED, ops.gather, *_ACTIVATED)]


@dataclass(frozen=True, slots=True)
class QuantizeConfig:
    """Settings of a quantization.

    ``mode``: ``dynamic`` (weights, and activations by ranges found while it runs), ``static`` (by ranges found on data)
    or ``weights`` alone: those of MatMul in blocks of ``block_size`` rows, by default of 4 ``bits``, those of Conv by
    channel in 8, and those of Gemm, the layers that a model ends in, likewise unless ``bits`` says otherwise.
    ``activation_type`` and ``weight_type`` say more of them in mode ``static``, the latter in ``dynamic``, too: by
    default uint8 (int8 where ``symmetric``) and int8. float8 goes with float8. Quantized values of signed types are
    symmetric in weights, those of all types where ``symmetric`` or in form ``qoperator``, which has quantized values of
    8 bits alone. ``calibration`` is a method of ``calibrate.METHODS``, ``search`` how quantized values of blocks are
    found. ``ops`` are the types to quantize (None: those with weights, and in mode ``static`` what lies between these),
    ``leave_out`` patterns of names of nodes that stay floats. ``budget`` is the greatest error of the outputs, relative
    to their size, for which the worst nodes stay floats. ``form`` is that of the result.
    ``initializers_as_constants`` takes initializers off the list of graph inputs, which no call can feed then; those
    that stay there are not quantized.
    """

    mode: str = MODES[0]
    bits: int | None = None
    block_size: int = 32
    activation_type: str | None = None
    weight_type: str | None = None
    per_channel: bool = True
    symmetric: bool = False
    calibration: str = "minmax"
    search: str = "rtn"
    ops: Sequence[str] | None = None
    leave_out: Sequence[str] = ()
    budget: float | None = None
    form: str = "qdq"
    initializers_as_constants: bool = True

    def __post_init__(self) -> None:
        choices = {
            "mode": MODES,
            "form": FORMS,
            "calibration": tuple(METHODS),
            "search": SEARCHES,
            "bits": (None, 4, 8) if self.mode == "weights" else (None, 8) if self.weight_type is None else (None,),
            "activation_type": (None, *_ACTIVATION_TYPES) if self.mode == "static" else (None,),
            "weight_type": (None, *_WEIGHT_TYPES.get(self.mode, ())),
        }
        for name, known in choices.items():
            if getattr(self, name) not in known:
                there = ", ".join(str(each) for each in known if each is not None)
                raise InvalidCall(
                    f"quantize: unsupported {name} in mode {self.mode}",
                    given=f"{name}={getattr(self, name)!r}",
                    available=there or None,
                    do="" if there else f"leave {name} out" + ("; bits=4 or bits=8" if self.mode == "weights" else ""),
                )
        both = f"{self.activations} and {self.weights}"
        if self.mode == "static" and self.activations.is_float is not self.weights.is_float:
            raise InvalidCall("quantize: only one of activations and weights is of float8", given=both)
        if self.mode == "static" and self.form == "qoperator" and self.version > 13:
            raise InvalidCall(
                "quantize: activations or weights are not of 8 bits, with form qoperator", given=both, do="use form qdq"
            )
        if self.block_size < 16 or self.block_size & (self.block_size - 1):
            raise InvalidCall("quantize: block_size is not a power of two from 16 on", given=str(self.block_size))
        if self.budget is not None and not self.budget >= 0:
            raise InvalidCall("quantize: budget is negative", given=str(self.budget))

    @property
    def activations(self) -> DType:
        return DType.of(self.activation_type or ("int8" if self.symmetric else "uint8"))

    @property
    def weights(self) -> DType:
        """The quantized values of weights that are not in blocks."""
        return DType.of(self.weight_type or ("int8" if self.activations.is_integer else self.activations))

    @property
    def version(self) -> int:
        """The version of ai.onnx that has all quantized values asked for, blocks apart."""
        newest = {DType.int8: 13, DType.uint8: 13, DType.float8e4m3fn: 19}
        return max(newest.get(dtype, 21) for dtype in (self.activations, self.weights))


def quantize(
    graph: Graph,
    batches: Data | None = None,
    *,
    columns: Mapping[str, Sequence[str]] | None = None,
    batch_size: int = 32,
    backend: str = "auto",
    **settings: Any,
) -> tuple[Graph, Report]:
    """``graph`` with quantized weights and activations, and a report; ``settings`` are those of ``QuantizeConfig``.

    ``batches`` are data on which ranges are found and errors measured; modes other than ``static`` can do without.
    They are an iterable of feeds, or what training takes: the path of a table, arrays by name, a loader or a data set,
    which are cut into batches of ``batch_size``; ``columns`` names the columns of an input, and labels are ignored.
    The result is at version 13 of ai.onnx or newer, 19 with float8, 21 with blocks, 16 or 4 bits, whatever the graph is
    at. Raises ``InvalidCall`` for settings that are not known, for a static quantization without data and where nothing
    can be quantized.
    """
    try:
        chosen = QuantizeConfig(**settings)
    except TypeError as error:
        known = ", ".join(QuantizeConfig.__dataclass_fields__)
        raise InvalidCall("quantize: unknown option", given=", ".join(settings), available=known) from error
    given = () if batches is None else batches
    feeds = list(batches_of(graph, given, columns=columns, batch_size=batch_size))
    if chosen.mode != "static" and chosen.budget is None and not is_measured(graph, feeds, None):
        feeds = []
    if not feeds and chosen.mode == "static":
        do = "give batches of inputs (on the command line --inputs FILE), or use mode dynamic"
        raise InvalidCall("static quantization got no calibration data", given="none", do=do)
    if not feeds and is_measured(graph, feeds, chosen.budget):
        feeds = [generate_feeds(graph)]
    original = graph.copy()
    if chosen.initializers_as_constants:
        original.all_inputs = original.inputs
    infer(original, strict=False)
    graph = weights_as_constants(original)
    _check_ops(graph, chosen)
    nodes = _candidates(graph, chosen)
    if not nodes:
        raise InvalidCall(
            "no op can be quantized",
            given=f"mode {chosen.mode}, ops {', '.join(chosen.ops) if chosen.ops else 'all'}",
            available=", ".join(_QUANTIZED),
        )
    found = _observed(graph, nodes, feeds, chosen, backend)
    wanted = {name: list(map(flat, parts)) for name, parts in found.outputs.items()}
    kept = list(nodes)
    if chosen.budget is not None:
        kept = _within_budget(graph, nodes, found.ranges, feeds, wanted, chosen, backend)
    made, quantized = _made(graph, kept, found.ranges, chosen)
    tensors = [TensorError(n, "weight", str(c.parameters.dtype), lost(v, c)) for n, (v, c) in quantized.items()]
    if chosen.mode == "static":
        for value, rounding in _parameters(graph, kept, found.ranges, chosen).items():
            floats = found.first[value.name]
            error = relative_error(encode(floats, rounding, None).numbers(), floats)
            tensors.append(TensorError(value.name, "activation", str(rounding.dtype), error))
    report = Report(
        tensors,
        errors(outputs_of(made, feeds, backend), wanted) if kept else dict.fromkeys(wanted, 0.0),
        [node.name or node.op_type for node in kept],
        [node.name or node.op_type for node in nodes if node not in kept],
        *reached(original, made),
    )
    floats = {value.name for value in graph.outputs if _is_float(value)}
    report.sqnr = {name: sqnr(error) for name, error in report.outputs.items() if name in floats}
    version = 21 if any(each.block_size for _, each in quantized.values()) else chosen.version
    made = retarget(made, max(graph.opsets.get("ai.onnx", 13), version))
    return (to_qoperator(made) if chosen.form == "qoperator" else made), report


def is_measured(graph: Graph, batches: Sequence[Batch], budget: float | None) -> bool:
    """Whether the model is run to find the errors of its outputs: a large one only on data, or for a budget.

    One with an op that no installed package provides is not run.
    """
    if any(not isinstance(node.op, Op) and not hasattr(node.op, "body") for node in graph.walk()):
        return False
    return bool(batches) or budget is not None or weight_bytes(graph) <= LARGEST_MEASURED


def _is_float(value: Value) -> bool:
    return isinstance(value.type, TensorType) and value.dtype.is_float


# ----- what is quantized ----------------------------------------------------------------------------------------------


def _weighted(node: Node) -> tuple[int, int] | None:
    """The position of the weights of a node and the axis of their channels."""
    found = next((place for op, place in _WEIGHTED.items() if is_meaning(node.op, op)), None)
    if found is None:
        return None
    position, axis = found
    weights = node.inputs[position] if len(node.inputs) > position else None
    if weights is None or not weights.is_constant or weights.dtype is not DType.float32 or weights.ndim < 2:
        return None
    if is_meaning(node.op, ops.gemm) and node.attributes.get("transB"):
        axis = 0
    return position, axis % weights.ndim


def _is_table(uses: Mapping[Value, Sequence[Node]], node: Node) -> bool:
    """Whether a node takes rows of a constant that only such nodes read, and that is long enough to be worth it."""
    if not is_meaning(node.op, ops.gather) or node.attributes.get("axis"):
        return False
    table = node.inputs[0]
    if table is None or not table.is_constant or table.dtype is not DType.float32 or table.ndim != 2:
        return False
    alone = all(is_meaning(n.op, ops.gather) and n.inputs[0] is table for n in uses[table])
    return alone and isinstance(rows := table.shape[0], int) and rows >= _LONG


def _check_ops(graph: Graph, chosen: QuantizeConfig) -> None:
    """Raise ``InvalidCall`` for a type of ops that neither the graph has nor can be quantized."""
    known = {*_QUANTIZED, *(node.op_type for node in graph.nodes)}
    for name in chosen.ops or ():
        if name not in known:
            raise InvalidCall(
                f'cannot quantize ops of the type "{name}": the model has none',
                given=", ".join(chosen.ops or ()),
                available=", ".join(_QUANTIZED),
                do=did_you_mean(name, _QUANTIZED),
            )


def _candidates(graph: Graph, chosen: QuantizeConfig) -> list[Node]:
    """The nodes to quantize."""
    found, uses = [], graph.uses()
    defaults = {value for value in graph.all_inputs if value.data is not None}
    for node in graph.nodes:
        wanted = (chosen.ops is None or node.op_type in chosen.ops) and defaults.isdisjoint(node.inputs)
        if not wanted or any(fnmatch.fnmatchcase(node.name or "", pattern) for pattern in chosen.leave_out):
            continue
        weighted = _weighted(node) is not None
        if chosen.mode == "weights":
            weights = node.inputs[1] if weighted else None
            chosen_node = weights is not None and (is_meaning(node.op, ops.conv) or weights.ndim == 2)
        else:
            chosen_node = weighted or _is_table(uses, node) or (chosen.mode == "static" and _is_activated(node))
        if chosen_node:
            found.append(node)
    return _between_quantized(graph, found) if chosen.ops is None else found


def _is_activated(node: Node) -> bool:
    return is_meaning(node.op, *_ACTIVATED) and all(map(_is_activation, node.inputs[:1]))


def _between_quantized(graph: Graph, nodes: list[Node]) -> list[Node]:
    """``nodes`` without ops that others of them neither feed nor read: to round for these alone would save nothing."""
    while True:
        made, read = _flow(graph, nodes)
        kept = [
            node
            for node in nodes
            if not _is_activated(node)
            or (made.issuperset(filter(_is_activation, node.inputs)) and not read.isdisjoint(node.outputs))
        ]
        if len(kept) == len(nodes):
            return kept
        nodes = kept


def _flow(graph: Graph, nodes: Sequence[Node]) -> tuple[set[Value | None], set[Value | None]]:
    """Outputs and inputs of these nodes, read directly or through ops that can work on quantized values."""
    passing = [n for n in graph.nodes if is_meaning(n.op, ops.relu) or _moves(n)]
    products = [node for node in nodes if not is_meaning(node.op, ops.gather)]
    made: set[Value | None] = {node.outputs[0] for node in products}
    read: set[Value | None] = {value for node in products for value in node.inputs}
    for node in passing:
        if node.inputs[0] in made:
            made.add(node.outputs[0])
    for node in reversed(passing):
        if node.outputs[0] in read:
            read.add(node.inputs[0])
    return made, read


def _moves(node: Node) -> bool:
    moves = isinstance(node.op, Op) and moves_data(node.op, node.attributes)
    return moves and not is_meaning(node.op, ops.where, ops.concat)


def _is_activation(value: Value | None) -> bool:
    return value is not None and not value.is_constant and value.type is not None and value.dtype is DType.float32


def _activations(graph: Graph, nodes: Sequence[Node]) -> list[Value]:
    """The values that a static quantization rounds: what the nodes read and give, the latter behind a Relu.

    Products of matrices give floats where no other of the nodes reads them: kernels of integers do so, too.
    """
    uses, (_, read) = graph.uses(), _flow(graph, nodes)
    found: dict[Value, None] = {}
    for node in nodes:
        if is_meaning(node.op, ops.gather):
            continue
        for value in node.inputs:
            if value is not None and _is_activation(value):
                found[value] = None
        result = node.outputs[0]
        if is_meaning(node.op, ops.matmul, ops.gemm) and result not in read:
            continue
        while result is not None and len(uses.get(result, ())) == 1 and is_meaning(uses[result][0].op, ops.relu):
            result = uses[result][0].outputs[0]
        if result is not None and _is_activation(result):
            found[result] = None
    for _, result in _handed_on(graph, found):
        found[result] = None
    hidden = {
        n.inputs[0]
        for n in graph.nodes
        if is_meaning(n.op, ops.relu) and len(uses.get(n.inputs[0], ())) == 1  # type: ignore[arg-type]
    }
    return [value for value in found if value not in hidden]


def _handed_on(graph: Graph, found: Collection[Value]) -> Iterator[tuple[Value, Value]]:
    """Values of which ops only move or choose elements, with the results of these, which can stay quantized."""
    for node in graph.nodes:
        value, result = (*node.inputs, None)[0], node.outputs[0]
        if _moves(node) and value in found and value is not None and result is not None and _is_activation(result):
            yield value, result


def _observed(
    graph: Graph, nodes: Sequence[Node], feeds: Sequence[Batch], chosen: QuantizeConfig, backend: str
) -> Observed:
    if not feeds:
        return Observed({}, {}, {})
    names = [value.name for value in _activations(graph, nodes)] if chosen.mode == "static" else []
    quantized: dict[str, Any] = {"dtype": chosen.activations, "symmetric": chosen.symmetric}
    return observe(graph, names, feeds, chosen.calibration, backend, **quantized)


def _made(
    graph: Graph, nodes: Sequence[Node], ranges: Mapping[str, tuple[float, float]], chosen: QuantizeConfig
) -> tuple[Graph, dict[str, tuple[Value, QuantizedTensor]]]:
    """The graph with these nodes quantized, and the weights with their quantized values."""
    weights: dict[str, tuple[Value, QuantizedTensor]] = {}
    plan = Insertions()
    if chosen.mode == "static":
        plan.activations = _parameters(graph, nodes, ranges, chosen)
    for node in nodes:
        if is_meaning(node.op, ops.gather) and (table := node.inputs[0]) is not None:
            axis = 1 if chosen.per_channel else None
            quantized = by_channel(static(table), DType.int8, axis, symmetric=True)
            weights[table.name], plan.tables[node] = (table, quantized), quantized
        place = _weighted(node)
        if place is None:
            continue
        position, axis = place
        value = node.inputs[position]
        assert value is not None
        assert value.data is not None
        options: dict[str, Any] = {"symmetric": chosen.symmetric, "search": chosen.search}
        if chosen.mode == "weights" and not _in_blocks(node, chosen):
            quantized = by_channel(static(value), DType.int8, axis, symmetric=True)
        elif chosen.mode == "weights" and axis == 1 and value.data.nbytes >= LARGE:
            quantized = in_blocks_of_rows(value, chosen.bits or 4, chosen.block_size, **options)
        elif chosen.mode == "weights":
            quantized = in_blocks(static(value), chosen.bits or 4, chosen.block_size, 1 - axis, **options)
        else:
            contents = static(value)
            dtype = chosen.weights
            symmetric = dtype.is_signed or chosen.symmetric or chosen.form == "qoperator"
            # onnxruntime makes QLinearMatMul of these, which takes no scales by column for a stack of matrices
            stacked = is_meaning(node.op, ops.matmul) and contents.ndim > 2
            channels = axis if chosen.per_channel and not stacked else None
            least = _least_scale(value, nodes, plan.activations) if dtype.is_integer else 0.0
            quantized = by_channel(contents, dtype, channels, symmetric=symmetric, least_scale=least)
        weights[value.name] = value, quantized
        plan.weights[node] = position, quantized
    if chosen.mode == "dynamic":
        plan.dynamic_inputs = dict.fromkeys(plan.weights, 0)
    return insert(graph, plan), weights


def _least_scale(
    weights: Value, nodes: Sequence[Node], activations: Mapping[Value, QuantizationParameters]
) -> Array | float:
    """The scale from which on the bias beside weights, in steps of input times weight, is an int32.

    There is one for each channel, or one for all. Nodes that share weights share the scale.
    """
    least: Array | float = 0.0
    for node in nodes:
        given, held, bias = (*node.inputs, None, None)[:3]
        known = None if bias is None or held is not weights else static(bias)
        if known is not None and given is not None and given in activations:
            steps = np.abs(known.astype(np.float64)) / activations[given].scale / LARGEST_BIAS
            steps *= abs(node.attributes.get("beta", 1.0) / (node.attributes.get("alpha", 1.0) or 1.0))
            least = np.maximum(least, steps.reshape(-1, steps.shape[-1]).max(0) if steps.ndim else steps)
    return least


def _in_blocks(node: Node, chosen: QuantizeConfig) -> bool:
    """Whether the weights of a node are quantized in blocks: kernels are too small, and few outputs want more bits."""
    return is_meaning(node.op, ops.matmul) or (is_meaning(node.op, ops.gemm) and chosen.bits is not None)


def _parameters(
    graph: Graph, nodes: Sequence[Node], ranges: Mapping[str, tuple[float, float]], chosen: QuantizeConfig
) -> dict[Value, QuantizationParameters]:
    """The parameters of each activation; what only moves elements hands its own on."""
    values, dtype = _activations(graph, nodes), chosen.activations
    found = {value: parameters(*ranges[value.name], dtype, symmetric=chosen.symmetric) for value in values}
    for value, result in _handed_on(graph, found):
        if result in found:
            found[result] = found[value]
    return found


# ----- what it costs --------------------------------------------------------------------------------------------------


def _within_budget(
    graph: Graph,
    nodes: Sequence[Node],
    ranges: Mapping[str, tuple[float, float]],
    feeds: Sequence[Batch],
    wanted: Mapping[str, list[Any]],
    chosen: QuantizeConfig,
    backend: str,
) -> list[Node]:
    """As many nodes as stay within the budget, those left out first whose own quantization costs most."""

    def cost(kept: Sequence[Node]) -> float:
        made, _ = _made(graph, kept, ranges, chosen)
        return max(errors(outputs_of(made, feeds, backend), wanted).values())

    worst = sorted(nodes, key=lambda node: -cost([node]))
    fewest, most = 0, len(nodes)  # of the nodes left out: binary search, as leaving more out costs less
    while fewest < most:
        middle = (fewest + most) // 2
        if cost([node for node in nodes if node not in worst[:middle]]) <= chosen.budget:
            most = middle
        else:
            fewest = middle + 1
    return [node for node in nodes if node not in worst[:fewest]]
