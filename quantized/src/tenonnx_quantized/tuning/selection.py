"""Selection of the nodes to quantize, and of the activations between them."""

from __future__ import annotations

import fnmatch
from collections.abc import Collection, Iterator, Mapping, Sequence

import tenonnx_standard as ops
from tenonnx.extend import DType, Graph, InvalidCall, Node, Op, Value, did_you_mean, moves_data
from tenonnx_quantized.forms.quantized_nodes import is_meaning
from tenonnx_quantized.tuning.config import QuantizeConfig

#: Ops with weights: the position of the weights and their channel axis.
_WEIGHTED: dict[Op, tuple[int, int]] = {ops.conv: (1, 0), ops.matmul: (1, -1), ops.gemm: (1, 1)}

#: Recurrent ops, whose weights ``[directions, gates * hidden, inputs]`` of the input and of the hidden state are
#: quantized by gate and unit. The hidden state and the results stay in floating point.
RECURRENT = (ops.lstm, ops.gru, ops.rnn)

#: Minimum number of rows for quantizing a Gather table.
_LONG = 32

#: Ops without weights whose activations static quantization quantizes, too.
_ACTIVATED = (ops.add, ops.mul, ops.average_pool, ops.global_average_pool, ops.concat, ops.sigmoid)

#: Op types that can be quantized in some mode.
QUANTIZED_OPS = [op.name for op in (*_WEIGHTED, *RECURRENT, ops.gather, *_ACTIVATED)]


def weight_places(node: Node) -> list[tuple[int, int]]:
    """The positions of the weights of a node, each with the axis of their channels."""
    if is_meaning(node.op, *RECURRENT):
        return [(position, 1) for position in (1, 2)] if all(map(_is_weight, node.inputs[1:3])) else []
    found = next((place for op, place in _WEIGHTED.items() if is_meaning(node.op, op)), None)
    if found is None:
        return []
    position, axis = found
    weights = node.inputs[position] if len(node.inputs) > position else None
    if weights is None or not _is_weight(weights):
        return []
    if is_meaning(node.op, ops.gemm) and node.attributes.get("transB"):
        axis = 0
    return [(position, axis % weights.ndim)]


def _is_weight(value: Value | None) -> bool:
    return value is not None and value.is_constant and value.dtype is DType.float32 and value.ndim > 1


def _quantized_inputs(node: Node) -> Sequence[Value | None]:
    """The inputs of a node that may be quantized activations: of a recurrent op, only its sequence."""
    return node.inputs[:1] if is_meaning(node.op, *RECURRENT) else node.inputs


def _is_table(uses: Mapping[Value, Sequence[Node]], node: Node) -> bool:
    """Whether a node gathers rows of a long enough constant used only by such nodes."""
    if not is_meaning(node.op, ops.gather) or node.attributes.get("axis"):
        return False
    table = node.inputs[0]
    if table is None or not table.is_constant or table.dtype is not DType.float32 or table.ndim != 2:
        return False
    alone = all(is_meaning(n.op, ops.gather) and n.inputs[0] is table for n in uses[table])
    return alone and isinstance(rows := table.shape[0], int) and rows >= _LONG


def check_ops(graph: Graph, chosen: QuantizeConfig) -> None:
    """Raise ``InvalidCall`` for an op type that is neither in the graph nor can be quantized."""
    known = {*QUANTIZED_OPS, *(node.op_type for node in graph.nodes)}
    for name in chosen.ops or ():
        if name not in known:
            raise InvalidCall(
                f'cannot quantize ops of the type "{name}": the model has none',
                given=", ".join(chosen.ops or ()),
                available=", ".join(QUANTIZED_OPS),
                do=did_you_mean(name, QUANTIZED_OPS),
            )


def candidates(graph: Graph, chosen: QuantizeConfig) -> list[Node]:
    """The nodes to quantize."""
    result, uses = [], graph.uses()
    defaults = {value for value in graph.all_inputs if value.data is not None}
    for node in graph.nodes:
        wanted = (chosen.ops is None or node.op_type in chosen.ops) and defaults.isdisjoint(node.inputs)
        rule = chosen.rule(node)
        if rule is not None and rule.keep_float:
            continue
        if not wanted or any(fnmatch.fnmatchcase(node.name or "", pattern) for pattern in chosen.leave_out):
            continue
        weighted = bool(weight_places(node))
        if chosen.mode == "dynamic" and any(value is not None and value.type is None for value in node.inputs):
            continue  # computed by an unknown op
        if chosen.mode == "weights":
            weights = node.inputs[1] if weighted else None
            chosen_node = weights is not None and (not is_meaning(node.op, ops.matmul, ops.gemm) or weights.ndim == 2)
        else:
            chosen_node = weighted or _is_table(uses, node) or (chosen.mode == "static" and _is_activated(node))
        if chosen_node:
            result.append(node)
    return _between_quantized(graph, result) if chosen.ops is None else result


def _is_activated(node: Node) -> bool:
    return is_meaning(node.op, *_ACTIVATED) and all(map(_is_activation, node.inputs[:1]))


def _between_quantized(graph: Graph, nodes: list[Node]) -> list[Node]:
    """Remove nodes that are not connected to another quantized node, since quantizing them alone saves nothing."""
    while True:
        outputs, read = _flow(graph, nodes)
        kept = [
            node
            for node in nodes
            if not _is_activated(node)
            or (outputs.issuperset(filter(_is_activation, node.inputs)) and not read.isdisjoint(node.outputs))
        ]
        if len(kept) == len(nodes):
            return kept
        nodes = kept


def _flow(graph: Graph, nodes: Sequence[Node]) -> tuple[set[Value | None], set[Value | None]]:
    """Outputs and inputs of these nodes, read directly or through ops that can work on quantized values."""
    passing = [n for n in graph.nodes if is_meaning(n.op, ops.relu) or _moves(n)]
    products = [node for node in nodes if not is_meaning(node.op, ops.gather)]
    outputs: set[Value | None] = {node.outputs[0] for node in products}
    read: set[Value | None] = {value for node in products for value in _quantized_inputs(node)}
    for node in passing:
        if node.inputs[0] in outputs:
            outputs.add(node.outputs[0])
    for node in reversed(passing):
        if node.outputs[0] in read:
            read.add(node.inputs[0])
    return outputs, read


def _moves(node: Node) -> bool:
    moves = isinstance(node.op, Op) and moves_data(node.op, node.attributes)
    return moves and not is_meaning(node.op, ops.where, ops.concat)


def _is_activation(value: Value | None) -> bool:
    return value is not None and not value.is_constant and value.type is not None and value.dtype is DType.float32


def activations_of(graph: Graph, nodes: Sequence[Node], float_outputs: Collection[str] = ()) -> list[Value]:
    """The values that static quantization rounds: inputs and outputs of the nodes, the latter after a Relu.

    Matrix products and recurrent ops return floats if none of the nodes reads them, like integer kernels. So do ops of
    the types ``float_outputs``.
    """
    uses, (_, read) = graph.uses(), _flow(graph, nodes)
    found: dict[Value, None] = {}
    for node in nodes:
        if is_meaning(node.op, ops.gather):
            continue
        for value in _quantized_inputs(node):
            if value is not None and _is_activation(value):
                found[value] = None
        result = node.outputs[0]
        as_floats = is_meaning(node.op, ops.matmul, ops.gemm, *RECURRENT) or node.op_type in float_outputs
        if as_floats and result not in read:
            continue
        while result is not None and len(uses.get(result, ())) == 1 and is_meaning(uses[result][0].op, ops.relu):
            result = uses[result][0].outputs[0]
        if result is not None and _is_activation(result):
            found[result] = None
    for _, result in handed_on(graph, found):
        found[result] = None
    hidden = {
        n.inputs[0]
        for n in graph.nodes
        if is_meaning(n.op, ops.relu) and len(uses.get(n.inputs[0], ())) == 1  # type: ignore[arg-type]
    }
    return [value for value in found if value not in hidden]


def handed_on(graph: Graph, found: Collection[Value]) -> Iterator[tuple[Value, Value]]:
    """Pairs of a quantized value and the result of an op that only moves or selects its elements."""
    for node in graph.nodes:
        value, result = (*node.inputs, None)[0], node.outputs[0]
        if _moves(node) and value in found and value is not None and result is not None and _is_activation(result):
            yield value, result
