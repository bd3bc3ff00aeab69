"""``quantize``: a model of floats as one of codes, with a report of what that costs."""

from __future__ import annotations

import fnmatch
import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

import tenonnx_standard as ops
from tenonnx.extend import DType, Graph, InvalidCall, Node, Op, Value, moves_data, static
from tenonnx.extend.backends import compile_graph, generate_feeds
from tenonnx.extend.transforms import LARGEST_MEASURED, infer, retarget, weight_bytes
from tenonnx_quantized.forms.codes import is_meaning
from tenonnx_quantized.forms.qoperator import to_qoperator
from tenonnx_quantized.tuning.calibrate import METHODS, Batch, Observed, observe
from tenonnx_quantized.tuning.codes import (
    SEARCHES,
    Codes,
    QuantizationParameters,
    by_channel,
    encode,
    in_blocks,
    in_blocks_of_rows,
    parameters,
)
from tenonnx_quantized.tuning.insert import Insertions, insert

#: From so many bytes on, a matrix is quantised in parts.
LARGE = 1 << 24

MODES = ("dynamic", "static", "weights")
FORMS = ("qdq", "qoperator")

_ACTIVATION_TYPES = ("uint8", "int8", "uint16", "int16", "float8e4m3fn")
_WEIGHT_TYPES: dict[str, tuple[str, ...]] = {
    "static": (*_ACTIVATION_TYPES, "int4", "uint4"), "dynamic": ("int8", "uint8"), "weights": (),
}  # fmt: skip

#: Ops with weights, and the position and the axis of channels of these.
_WEIGHTED: dict[Op, tuple[int, int]] = {ops.conv: (1, 0), ops.matmul: (1, -1), ops.gemm: (1, 1)}

#: From so many rows on, a table is quantised that rows are taken of.
_LONG = 32

#: Ops whose activations a static quantisation rounds, too.
_ACTIVATED = (ops.add, ops.mul, ops.average_pool, ops.global_average_pool, ops.concat, ops.sigmoid)


@dataclass(frozen=True, slots=True)
class QuantizeConfig:
    """How to quantise.

    ``mode``: ``dynamic`` (weights, and activations by ranges found while it runs), ``static`` (by ranges found on data)
    or ``weights`` alone: those of MatMul in blocks of ``block_size`` rows, by default of 4 ``bits``, those of Conv by
    channel in 8, and those of Gemm, the layers that a model ends in, likewise unless ``bits`` says otherwise.
    ``activation_type`` and ``weight_type`` say more of them in mode ``static``, the latter in ``dynamic``, too: by
    default uint8 (int8 where ``symmetric``) and int8. float8 goes with float8. Codes of signed types are symmetric in
    weights, those of all types where ``symmetric`` or in form ``qoperator``, which has codes of 8 bits alone.
    ``calibration`` is a method of ``calibrate.METHODS``, ``search`` how codes of blocks are found. ``ops`` are the
    types to quantise (None: those with weights, and in mode ``static`` what lies between these), ``leave_out`` patterns
    of names of nodes that stay floats. ``budget`` is the greatest error of the outputs, relative to their size, for
    which the worst nodes stay floats. ``form`` is that of the result.
    """

    mode: str = "static"
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

    def __post_init__(self) -> None:
        choices = {
            "mode": MODES, "form": FORMS, "calibration": tuple(METHODS), "search": SEARCHES,
            "bits": (None, 4, 8) if self.mode == "weights" else (None, 8) if self.weight_type is None else (None,),
            "activation_type": (None, *_ACTIVATION_TYPES) if self.mode == "static" else (None,),
            "weight_type": (None, *_WEIGHT_TYPES.get(self.mode, ())),
        }  # fmt: skip
        for name, known in choices.items():
            if getattr(self, name) not in known:
                there = ", ".join(str(each) for each in known if each is not None)
                raise InvalidCall(
                    f"quantize: unsupported {name} in mode {self.mode}", given=f"{name}={getattr(self, name)!r}",
                    available=there or None,
                    do="" if there else f"leave {name} out" + ("; bits=4 or bits=8" if self.mode == "weights" else ""),
                )  # fmt: skip
        both = f"{self.activations} and {self.weights}"
        if self.mode == "static" and self.activations.is_float is not self.weights.is_float:
            raise InvalidCall("quantize: activations and weights must both be of float8, or neither", given=both)
        if self.mode == "static" and self.form == "qoperator" and self.version > 13:
            raise InvalidCall("quantize: form qoperator needs 8-bit integers", given=both, do="use form qdq")
        if self.block_size < 16 or self.block_size & (self.block_size - 1):
            raise InvalidCall("quantize: block_size must be a power of two from 16 on", given=str(self.block_size))
        if self.budget is not None and not self.budget >= 0:
            raise InvalidCall("quantize: budget must not be negative", given=str(self.budget))

    @property
    def activations(self) -> DType:
        return DType.of(self.activation_type or ("int8" if self.symmetric else "uint8"))

    @property
    def weights(self) -> DType:
        """The codes of weights that are not in blocks."""
        return DType.of(self.weight_type or ("int8" if self.activations.is_integer else self.activations))

    @property
    def version(self) -> int:
        """The version of ai.onnx that has all codes asked for, blocks apart."""
        newest = {DType.int8: 13, DType.uint8: 13, DType.float8e4m3fn: 19}
        return max(newest.get(dtype, 21) for dtype in (self.activations, self.weights))


@dataclass(frozen=True, slots=True)
class TensorError:
    """How far what codes stand for lies from a tensor: its error relative to its size (root of mean squares)."""

    name: str
    kind: str
    dtype: str
    error: float


@dataclass(slots=True)
class Report:
    """What was quantised, at what cost: the error of each tensor and of each output, and the nodes that stay floats.

    ``reached`` is the share of the numbers of the model's weights that are codes now; ``kept`` are the weights that are
    not, with the types of the nodes that use them: largest first.
    """

    tensors: list[TensorError] = field(default_factory=list)
    outputs: dict[str, float] = field(default_factory=dict)
    quantised: list[str] = field(default_factory=list)
    floats: list[str] = field(default_factory=list)
    reached: float = 1.0
    kept: dict[str, str] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        tensors = [{"name": t.name, "kind": t.kind, "dtype": t.dtype, "error": t.error} for t in self.tensors]
        return {
            "quantised": self.quantised, "floats": self.floats, "tensors": tensors, "outputs": self.outputs,
            "reached": self.reached, "kept": self.kept,
        }  # fmt: skip


def quantize(
    graph: Graph, batches: Iterable[Batch] | None = None, *, backend: str = "auto", **settings: Any
) -> tuple[Graph, Report]:
    """``graph`` with codes for weights and activations, and a report; ``settings`` are those of ``QuantizeConfig``.

    ``batches`` are feeds, on which ranges are found and errors measured; modes other than ``static`` can do without.
    The result is at version 13 of ai.onnx or newer, 19 with float8, 21 with blocks, 16 or 4 bits, whatever the graph is
    at. Raises ``InvalidCall`` for settings that are not known, for a static quantisation without data and where nothing
    can be quantised.
    """
    try:
        chosen = QuantizeConfig(**settings)
    except TypeError as error:
        known = ", ".join(QuantizeConfig.__dataclass_fields__)
        raise InvalidCall(
            "quantize takes the fields of QuantizeConfig", given=", ".join(settings), available=known
        ) from error
    feeds = [dict(batch) for batch in batches or ()]
    if not feeds and chosen.mode == "static":
        do = "give batches of inputs (on the command line --inputs FILE), or use mode dynamic"
        raise InvalidCall("static quantization needs calibration data", given="none", do=do)
    if not feeds and is_measured(graph, feeds, chosen.budget):
        feeds = [generate_feeds(graph)]
    graph = graph.copy()
    infer(graph, strict=False)
    nodes = _candidates(graph, chosen)
    if not nodes:
        raise InvalidCall(
            "no op can be quantized", given=f"mode {chosen.mode}, ops {chosen.ops or 'all'}",
            available=", ".join(op.name for op in (*_WEIGHTED, *_ACTIVATED)),
        )  # fmt: skip
    found = _observed(graph, nodes, feeds, chosen, backend)
    wanted = {name: list(map(_flat, parts)) for name, parts in found.outputs.items()}
    kept = list(nodes)
    if chosen.budget is not None:
        kept = _within_budget(graph, nodes, found.ranges, feeds, wanted, chosen, backend)
    made, codes = _made(graph, kept, found.ranges, chosen)
    tensors = [TensorError(n, "weight", str(c.parameters.dtype), _lost(v, c)) for n, (v, c) in codes.items()]
    if chosen.mode == "static":
        for value, rounding in _parameters(graph, kept, found.ranges, chosen).items():
            floats = found.first[value.name]
            error = _error(encode(floats, rounding, None).numbers(), floats)
            tensors.append(TensorError(value.name, "activation", str(rounding.dtype), error))
    report = Report(
        tensors,
        _errors(_outputs(made, feeds, backend), wanted) if kept else dict.fromkeys(wanted, 0.0),
        [node.name or node.op_type for node in kept],
        [node.name or node.op_type for node in nodes if node not in kept],
        *_reached(graph, made),
    )
    version = 21 if any(each.block_size for _, each in codes.values()) else chosen.version
    made = retarget(made, max(graph.opsets.get("ai.onnx", 13), version))
    return (to_qoperator(made) if chosen.form == "qoperator" else made), report


def is_measured(graph: Graph, batches: Sequence[Batch], budget: float | None) -> bool:
    """Whether the model is run to find the errors of its outputs: a large one only on data, or for a budget."""
    return bool(batches) or budget is not None or weight_bytes(graph) <= LARGEST_MEASURED


# ----- what is quantised ----------------------------------------------------------------------------------------------


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


def _candidates(graph: Graph, chosen: QuantizeConfig) -> list[Node]:
    """The nodes to quantise."""
    found, uses = [], graph.uses()
    for node in graph.nodes:
        wanted = chosen.ops is None or node.op_type in chosen.ops
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
    return _between_codes(graph, found) if chosen.ops is None else found


def _is_activated(node: Node) -> bool:
    return is_meaning(node.op, *_ACTIVATED) and all(map(_is_activation, node.inputs[:1]))


def _between_codes(graph: Graph, nodes: list[Node]) -> list[Node]:
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
    """The values that these nodes give, and those that they read: directly, or by ops that can work on codes."""
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
    """The values that a static quantisation rounds: what the nodes read and give, the latter behind a Relu.

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
    """The values that ops only move elements of, or choose among, with what these give: it can keep their codes."""
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
    codes: dict[str, Any] = {"dtype": chosen.activations, "symmetric": chosen.symmetric}
    return observe(graph, names, feeds, chosen.calibration, backend, **codes)


def _made(
    graph: Graph, nodes: Sequence[Node], ranges: Mapping[str, tuple[float, float]], chosen: QuantizeConfig
) -> tuple[Graph, dict[str, tuple[Value, Codes]]]:
    """The graph with these nodes quantised, and the weights with their codes."""
    weights: dict[str, tuple[Value, Codes]] = {}
    plan = Insertions()
    for node in nodes:
        if is_meaning(node.op, ops.gather) and (table := node.inputs[0]) is not None:
            axis = 1 if chosen.per_channel else None
            codes = by_channel(static(table), DType.int8, axis, symmetric=True)
            weights[table.name], plan.tables[node] = (table, codes), codes
        place = _weighted(node)
        if place is None:
            continue
        position, axis = place
        value = node.inputs[position]
        assert value is not None
        assert value.data is not None
        options: dict[str, Any] = {"symmetric": chosen.symmetric, "search": chosen.search}
        if chosen.mode == "weights" and not _in_blocks(node, chosen):
            codes = by_channel(static(value), DType.int8, axis, symmetric=True)
        elif chosen.mode == "weights" and axis == 1 and value.data.nbytes >= LARGE:
            codes = in_blocks_of_rows(value, chosen.bits or 4, chosen.block_size, **options)
        elif chosen.mode == "weights":
            codes = in_blocks(static(value), chosen.bits or 4, chosen.block_size, 1 - axis, **options)
        else:
            contents = static(value)
            dtype = chosen.weights
            symmetric = dtype.is_signed or chosen.symmetric or chosen.form == "qoperator"
            # onnxruntime makes QLinearMatMul of these, which takes no scales by column for a stack of matrices
            stacked = is_meaning(node.op, ops.matmul) and contents.ndim > 2
            channels = axis if chosen.per_channel and not stacked else None
            codes = by_channel(contents, dtype, channels, symmetric=symmetric)
        weights[value.name] = value, codes
        plan.weights[node] = position, codes
    if chosen.mode == "static":
        plan.activations = _parameters(graph, nodes, ranges, chosen)
    elif chosen.mode == "dynamic":
        plan.dynamic_inputs = dict.fromkeys(plan.weights, 0)
    return insert(graph, plan), weights


def _in_blocks(node: Node, chosen: QuantizeConfig) -> bool:
    """Whether the weights of a node are quantised in blocks: kernels are too small, and few outputs want more bits."""
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


def _reached(graph: Graph, made: Graph) -> tuple[float, dict[str, str]]:
    """The share of the numbers of weights that are no longer in ``made``, and those that are, with what uses them."""
    weights = {v.name: v for v in graph.variables if _is_weight(v)}
    sizes = {
        name: math.prod(dim for dim in v.tensor.shape or () if isinstance(dim, int)) for name, v in weights.items()
    }
    uses, left = made.uses(), [v for v in made.variables if v.name in weights and v.dtype.is_float]
    left.sort(key=lambda v: -sizes[v.name])
    kept = {v.name: ", ".join(dict.fromkeys(n.op_type for n in uses.get(v, ()))) for v in left}
    kept = {name: types for name, types in kept.items() if types}
    total = sum(sizes.values())
    return (1.0 - sum(map(sizes.__getitem__, kept)) / total if total else 1.0), kept


def _is_weight(value: Value) -> bool:
    return value.type is not None and value.dtype.is_float and value.ndim > 1 and value.data is not None


# ----- what it costs --------------------------------------------------------------------------------------------------


def _outputs(graph: Graph, feeds: Sequence[Batch], backend: str) -> dict[str, list[Any]]:
    if not feeds:
        return {}
    program = compile_graph(graph, backend)
    found: dict[str, list[Any]] = {}
    for batch in feeds:
        for name, contents in program(batch).items():
            found.setdefault(name, []).append(_flat(contents))
    return found


def _flat(contents: Any) -> Any:
    return np.asarray(contents, np.float64).reshape(-1)


def _lost(weights: Value, codes: Codes) -> float:
    return _error(codes.numbers(), static(weights)) if codes.error is None else codes.error


def _error(found: Any, wanted: Any) -> float:
    """The root of the mean square of the difference, relative to that of what is wanted."""
    size = float(np.sqrt(np.mean(np.square(wanted, dtype=np.float64))))
    lost = float(np.sqrt(np.mean(np.square(np.subtract(found, wanted, dtype=np.float64)))))
    return lost / size if size else lost


def _errors(found: Mapping[str, list[Any]], wanted: Mapping[str, list[Any]]) -> dict[str, float]:
    return {name: _error(np.concatenate(found[name]), np.concatenate(parts)) for name, parts in wanted.items()}


def _within_budget(
    graph: Graph, nodes: Sequence[Node], ranges: Mapping[str, tuple[float, float]], feeds: Sequence[Batch],
    wanted: Mapping[str, list[Any]], chosen: QuantizeConfig, backend: str,
) -> list[Node]:  # fmt: skip
    """As many nodes as stay within the budget, those left out first whose own quantisation costs most."""

    def cost(kept: Sequence[Node]) -> float:
        made, _ = _made(graph, kept, ranges, chosen)
        return max(_errors(_outputs(made, feeds, backend), wanted).values())

    worst = sorted(nodes, key=lambda node: -cost([node]))
    fewest, most = 0, len(nodes)  # of the nodes left out: binary search, as leaving more out costs less
    while fewest < most:
        middle = (fewest + most) // 2
        if cost([node for node in nodes if node not in worst[:middle]]) <= chosen.budget:
            most = middle
        else:
            fewest = middle + 1
    return [node for node in nodes if node not in worst[:fewest]]
