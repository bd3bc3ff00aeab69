"""Training mode of BatchNormalization and Dropout."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from tenonnx.extend import Graph, Node, Op, Value, constant, static
from tenonnx.extend.formats import Function
from tenonnx.extend.transforms import (
    Builder,
    Call,
    Rewriter,
    bind,
    changing,
    copy_graph,
    interpreting,
    invoke,
    known_op,
)
from tenonnx_standard.batch_norm import batch_normalization, batch_normalization_spatial
from tenonnx_standard.casting import cast_like
from tenonnx_standard.math import maximum
from tenonnx_standard.normalization import but_channels, count_along
from tenonnx_standard.regularization import dropout, dropout_off, dropout_off_masked_by_number
from tenonnx_standard.shapes import identity
from tenonnx_training.pooled import pooled_first
from tenonnx_training.weight_readers import name_of

#: Before this version, the attribute is_test of BatchNormalization and Dropout selects inference mode.
_WITHOUT_IS_TEST = 7

#: Inputs of BatchNormalization, at every version: scale and shift, and running statistics.
_AFFINE, _STATISTICS = slice(1, 3), slice(3, 5)


#: Metadata key of the momentum of the original module, where the node has another.
MOMENTUM = "tenonnx.momentum"


@dataclass
class TrainingForm:
    """A graph in training mode. ``statistics`` maps variables to the values that replace them after a step."""

    graph: Graph
    statistics: dict[str, Value] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


def without_functions(graph: Graph) -> Graph:
    """``graph`` with local functions expanded that contain BatchNormalization or Dropout."""

    def decide(rewriter: Rewriter, call: Call) -> Sequence[Value | None] | None:
        return rewriter.expand(call) if _has_modes(call.op) else None

    return Rewriter(graph, decide).run() if any(_has_modes(node.op) for node in graph.walk()) else graph


def _has_modes(op: object) -> bool:
    """Whether ``op`` is a local function that calls BatchNormalization or Dropout."""
    if not isinstance(op, Function):
        return False
    inside = [node.op for node in op.body.walk()]
    return any(_is(o, batch_normalization) or _is(o, dropout) or _has_modes(o) for o in inside)


def without_gradients(graph: Graph) -> set[str]:
    """Values that have no gradient: running statistics, and the ratios of Dropout."""
    slices: list[tuple[Op, slice]] = [(batch_normalization, _STATISTICS), (dropout, slice(1, 2))]
    return {name_of(v) for node in graph.walk() for op, part in slices if _is(node.op, op) for v in node.inputs[part]}


def statistics_of(graph: Graph, trained: Collection[str] | None = None) -> list[str]:
    """The variables with running statistics of BatchNormalizations that are not frozen; see ``training_form``."""
    variables = {value.name for value in graph.variables}
    nodes = [node for node in graph.nodes if _is(node.op, batch_normalization) and not _is_frozen(node, trained)]
    names = [name_of(value) for node in nodes for value in node.inputs[_STATISTICS]]
    return [name for name in dict.fromkeys(names) if name in variables]


def _is_frozen(node: Node, trained: Collection[str] | None) -> bool:
    """Whether a BatchNormalization has neither a trained scale nor shift; ``trained`` None means all are trained."""
    return trained is not None and not any(name_of(v) in trained for v in node.inputs[_AFFINE])


def training_form(graph: Graph, *, trained: Collection[str] | None = None, unbiased: bool = False) -> TrainingForm:
    """``graph`` with Dropout and BatchNormalization in training mode, whatever mode the file has.

    With ``trained``, a BatchNormalization whose scale and shift are not among these names is frozen: it uses its
    running statistics and keeps them. ``unbiased``: running variances follow the unbiased estimate, as in PyTorch. The
    notes list nodes that could not be switched.
    """
    form = TrainingForm(graph)
    seen: set[str] = set()

    def decide(rewriter: Rewriter, call: Call) -> Sequence[Value | None] | None:
        if call.node is None:
            return None
        if _is(call.op, dropout):
            seen.add(dropout.name)
            return _dropping(call)
        if _is(call.op, batch_normalization):
            seen.add(batch_normalization.name)
            frozen = _is_frozen(call.node, trained)
            return _by_running_statistics(call) if frozen else _by_batch(rewriter, call, form, unbiased)
        return None

    form.graph = Rewriter(pooled_first(graph), decide).run()
    if missing := [op.name for op in (batch_normalization, dropout) if op.name not in seen]:
        form.notes.append(
            f"the file has no {' and no '.join(missing)}: if the model had any, its exporter folded or removed it, "
            "and the model is trained without"
        )
    return form


def _is(op: object, newest: Op) -> bool:
    """Whether ``op`` is any version of ``newest``."""
    return isinstance(op, Op) and (op.domain, op.name) == (newest.domain, newest.name)


def _dropping(call: Call) -> Sequence[Value | None]:
    data, *others = call.inputs
    ratio = others[0] if others else None
    if ratio is None and "ratio" in call.attributes:
        ratio = constant(call.attributes["ratio"], "float32")
    if call.outputs == 1:
        return (dropout(data, ratio, constant(True), _outputs=1),)
    output, mask = dropout(data, ratio, constant(True))
    return output, mask if call.op in (dropout, dropout_off) else cast_like(mask, data)


def _by_batch(rewriter: Rewriter, call: Call, form: TrainingForm, unbiased: bool) -> Sequence[Value | None] | None:
    node = call.node
    assert node is not None
    if rewriter.outer is not None or not call.attributes.get("spatial", 1):
        where = "is in a subgraph" if rewriter.outer is not None else "has spatial=0"
        form.notes.append(f"{node.title} {where}: its running statistics are not updated")
        return None
    names = [value.name if value is not None else "" for value in call.inputs[_STATISTICS]]
    momentum = _momentum(node, call.attributes["momentum"])
    if momentum == 1.0:
        form.notes.append(f"{node.title} has the momentum 1.0: its running statistics stay as they are")
    is_reusable = momentum == call.attributes["momentum"] and not (unbiased and call.op is batch_normalization)
    if len(node.outputs) > 1 and is_reusable:  # it is in training mode already
        results: Sequence[Value | None] | None = None
        replaced = [None if v is None else rewriter.copy(v) for v in node.outputs[1:3]]
    else:
        inputs = list(call.inputs)
        inputs[_STATISTICS] = [form.statistics.get(n, v) for n, v in zip(names, inputs[_STATISTICS], strict=True)]
        normalize = _with_unbiased if unbiased else batch_normalization
        options = {"epsilon": call.attributes["epsilon"], "momentum": momentum}
        normalized_outputs = normalize(*inputs, **options, training_mode=1, _outputs=3)
        normalized, *replaced = normalized_outputs
        results = normalized_outputs if len(node.outputs) > 1 else (normalized,)
    input_names = {value.name for value in rewriter.source.all_inputs}
    for name, value in zip(names, replaced, strict=False):
        if name in input_names and value is not None:
            form.statistics[name] = value
        else:
            form.notes.append(f'{node.title} has no initializer "{name}" for running statistics, which are not stored')
    return results


def _momentum(node: Node, written: float) -> float:
    """The momentum of a BatchNormalization; that of its module where the file has 1.0, which never updates."""
    noted = (entry.value for entry in getattr(node.origin, "metadata_props", ()) if entry.key == MOMENTUM)
    return written if written != 1.0 else float(next(noted, written))


def _with_unbiased(*inputs: Any, momentum: float, **options: Any) -> tuple[Value, Value, Value]:
    """BatchNormalization in training mode whose running variance follows the unbiased variance of the batch.

    It is updated outside of the op, since onnxruntime overwrites its input in place.
    """
    x, scale, shift, mean, variance = inputs
    y, after_mean, part = batch_normalization(
        x, scale, shift, mean, variance * 0.0, momentum=momentum, **options
    )  # the variance of the batch times its share
    count = count_along(cast_like(x, variance), but_channels(x.ndim))
    more = count / max(count - 1, 1) if isinstance(count, float) else count / maximum(count - 1.0, 1.0)
    return y, after_mean, variance * momentum + part * more


# ----- evaluation form ------------------------------------------------------------------------------------------------


@changing("numbers")
def evaluation_form(graph: Graph) -> Graph:
    """Switch BatchNormalization and Dropout to inference mode in a file that was exported in training mode.

    The result is a copy; nodes that are in that form already stay as they are.
    """
    copy = copy_graph(graph)
    switch_to_inference(copy)
    return copy


def switch_to_inference(graph: Graph) -> None:
    """Switch ``graph`` itself to inference mode; local functions with training nodes are inlined."""
    waiting = list(graph.nodes)
    while waiting:
        node = waiting.pop()
        for subgraph in node.subgraphs:
            switch_to_inference(subgraph)
        if isinstance(node.op, Function) and _may_train(node.op):
            waiting += _inlined(graph, node)
        elif _node_trains(node):
            _node_to_inference_mode(graph, node)


def _node_to_inference_mode(graph: Graph, node: Node) -> None:
    """Switch a node to inference mode, as its version requires."""
    written = {name: value for name, value in node.attributes.items() if name != "training_mode"}
    if "momentum" in written:
        written["momentum"] = _momentum(node, written["momentum"])
    node._replace_fields(attributes={**written, "is_test": 1} if node.version < _WITHOUT_IS_TEST else written)
    if _is(node.op, dropout):
        node._replace_fields(inputs=node.inputs[:2])
        if node.version < _WITHOUT_IS_TEST and len(node.outputs) > 1:  # in inference mode it has no mask
            node._replace_fields(op=dropout_off_masked_by_number, version=_WITHOUT_IS_TEST, attributes={})
        return
    statistics, uses = node.inputs[_STATISTICS], graph.uses()
    for value, statistic in zip(node.outputs[1:], statistics * 2, strict=False):
        if value is not None and (value in uses or any(value is output for output in graph.outputs)):
            graph.append(Node(identity, node.version, [statistic], {}, [value]))
            graph.nodes.insert(graph.nodes.index(node), graph.nodes.pop())
    node._replace_fields(outputs=node.outputs[:1])


def _inlined(graph: Graph, node: Node) -> list[Node]:
    """Replace the call of a local function by its nodes, and return them."""
    op, start, (inputs, attributes) = known_op(node), len(graph.nodes), bind(node)
    graph.root.infer()
    with interpreting(Builder(graph, prefix=node.name or node.op_type)):
        results = invoke(op, op.function, inputs, attributes, len(node.outputs))
    fresh, position = graph.nodes[start:], graph.nodes.index(node)
    graph.nodes[start:] = []
    graph.nodes[position : position + 1] = fresh
    with graph.editing():
        for output, result in zip(node.outputs, results, strict=False):
            if output is not None and result is not None:
                graph.replace(output, result)
    return fresh


def _may_train(function: Function) -> bool:
    """Whether ``function`` contains a BatchNormalization or Dropout that trains, or whose mode is an argument."""
    nodes = function.body.walk()
    return any(_may_train(n.op) if isinstance(n.op, Function) else _node_trains(n) for n in nodes)


def _node_trains(node: Node) -> bool:
    if not any(_is(node.op, op) for op in (batch_normalization, dropout)):
        return False
    inputs, attributes = bind(node)
    return _trains(Call(known_op(node), tuple(inputs), attributes, len(node.outputs), node))


def _by_running_statistics(call: Call) -> Sequence[Value | None] | None:
    """BatchNormalization in inference mode, None where it is in that mode already."""
    if not _trains(call):
        return None
    options = {name: call.attributes[name] for name in ("epsilon", "momentum")}
    by_channel = call.attributes.get("spatial", 1)
    used = batch_normalization if by_channel else partial(batch_normalization_spatial, spatial=0)
    normalized = used(*call.inputs, **options, _outputs=1)
    return (normalized, *call.inputs[_STATISTICS], *call.inputs[_STATISTICS])[: call.outputs]


def _trains(call: Call) -> bool:
    """Whether a call of Dropout or BatchNormalization is in training mode, which depends on the version."""
    if call.op is dropout:
        mode = static(call.inputs[2])
        return call.inputs[2] is not None and (mode is None or bool(mode.any()))
    if "training_mode" in call.attributes:
        return bool(call.attributes["training_mode"])
    if "is_test" in call.attributes:
        return not call.attributes["is_test"]
    return call.op.name == batch_normalization.name and (call.outputs or 1) > 1
