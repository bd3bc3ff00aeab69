"""Training form: what BatchNormalization and Dropout do while a model is trained."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from tenonnx.extend import Graph, Op, Value, constant
from tenonnx.transforms.rewrite import Call, Rewriter
from tenonnx_standard.activation import relu
from tenonnx_standard.batch_normalization import batch_normalization
from tenonnx_standard.dropout import dropout
from tenonnx_standard.pooling import max_pool

#: The inputs of BatchNormalization, at every version, that hold running statistics.
_STATISTICS = slice(3, 5)


@dataclass
class TrainingForm:
    """A graph as it is trained. ``statistics`` maps variables to the values that replace them after a step."""

    graph: Graph
    statistics: dict[str, Value] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


def statistics_of(graph: Graph) -> list[str]:
    """The variables that hold running statistics."""
    found = [
        value.name
        for node in graph.nodes
        if _is(node.op, batch_normalization)
        for value in node.inputs[_STATISTICS]
        if value is not None and any(value is variable for variable in graph.variables)
    ]
    return list(dict.fromkeys(found))


def training_form(graph: Graph, *, frozen_statistics: bool = False) -> TrainingForm:
    """``graph`` with Dropout at work and BatchNormalization by the statistics of the batch, whatever its file says.

    With ``frozen_statistics`` BatchNormalization stays as it is. The notes say what could not be seen or done.
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
            if not frozen_statistics:
                return _by_batch(rewriter, call, form)
        return _pooled_first(call)

    form.graph = Rewriter(graph, decide).run()
    if missing := [op.name for op in (batch_normalization, dropout) if op.name not in seen]:
        form.notes.append(
            f"the file has no {' and no '.join(missing)}: if the model had, its exporter folded or dropped it "
            "(exporting in training mode keeps it)"
        )
    return form


def _is(op: object, newest: Op) -> bool:
    """Whether ``op`` is some version of ``newest``."""
    return isinstance(op, Op) and (op.domain, op.name) == (newest.domain, newest.name)


def _pooled_first(call: Call) -> Sequence[Value | None] | None:
    """MaxPool of Relu as Relu of MaxPool: the same numbers and gradients, and fewer of them to compute."""
    node = call.inputs[0].producer if _is(call.op, max_pool) and call.inputs[0] is not None else None
    if node is None or node.op is not relu or (call.outputs or 1) > 1:
        return None
    return (relu(call.op(node.inputs[0], **call.attributes)),)


def _dropping(call: Call) -> Sequence[Value | None]:
    data, *others = call.inputs
    ratio = others[0] if others else None
    if ratio is None and "ratio" in call.attributes:
        ratio = constant(call.attributes["ratio"], "float32")
    results = dropout(data, ratio, constant(True), _outputs=call.outputs)
    return results if isinstance(results, tuple) else (results,)


def _by_batch(rewriter: Rewriter, call: Call, form: TrainingForm) -> Sequence[Value | None] | None:
    node = call.node
    assert node is not None
    if rewriter.outer is not None or not call.attributes.get("spatial", 1):
        where = "lies in a subgraph" if rewriter.outer is not None else "is not by channel"
        form.notes.append(f"{node.title} {where}: it keeps its running statistics")
        return None
    names = [value.name if value is not None else "" for value in call.inputs[_STATISTICS]]
    if len(node.outputs) > 1:  # it is in training already
        results = None
        replaced = [None if v is None else rewriter.copy(v) for v in node.outputs[1:3]]
    else:
        inputs = list(call.inputs)
        inputs[_STATISTICS] = [form.statistics.get(n, v) for n, v in zip(names, inputs[_STATISTICS], strict=True)]
        options = {name: call.attributes[name] for name in ("epsilon", "momentum")}
        normalised, *replaced = batch_normalization(*inputs, **options, training_mode=1, _outputs=3)
        results = (normalised,)
    held = {value.name for value in rewriter.source.formals}
    for name, value in zip(names, replaced, strict=False):
        if name in held and value is not None:
            form.statistics[name] = value
        else:
            form.notes.append(f'{node.title} has no variable "{name}" to keep running statistics in')
    return results


def evaluation_form(graph: Graph) -> Graph:
    """``graph`` as it is used, also where its file was exported as it is trained."""

    def decide(rewriter: Rewriter, call: Call) -> Sequence[Value | None] | None:
        if call.op is dropout:
            data, ratio, _ = call.inputs
            results = dropout(data, ratio, None, _outputs=call.outputs) if call.node is not None else None
            return results if isinstance(results, tuple) or results is None else (results,)
        if _is(call.op, batch_normalization) and call.node is not None and len(call.node.outputs) > 1:
            options = {name: call.attributes[name] for name in ("epsilon", "momentum")}
            normalised = batch_normalization(*call.inputs, **options, _outputs=1)
            return (normalised, *call.inputs[_STATISTICS], *call.inputs[_STATISTICS])[: call.outputs]
        return None

    return Rewriter(graph, decide).run()
