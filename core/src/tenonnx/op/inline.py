"""Inlining: replays a graph as calls, for function expansion and nested graphs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tenonnx.errors import InvalidCall, TypeMismatch
from tenonnx.graph.graph import Graph, Node, Value
from tenonnx.op.binding import bind, known_op
from tenonnx.op.build import Builder, captured_by, subgraph
from tenonnx.op.call import Interpreter, current


def inline(
    graph: Graph,
    inputs: Sequence[Value | None],
    *,
    attributes: Mapping[str, Any] | None = None,
    captures: Sequence[Value] | None = None,
) -> tuple[Value | None, ...]:
    """The outputs of ``graph`` for these inputs, computed by the active interpreter.

    ``captures`` replace the values that the graph captures; None keeps them, as in the body of an op with a subgraph.
    ``attributes`` are those of a function call and resolve attribute references in the graph. Raises ``TypeMismatch``
    if the inputs do not match those of the graph.
    """
    interpreter = current()
    if interpreter is None:
        raise InvalidCall("inline was called while no graph is built")
    if isinstance(inputs, Value) or len(inputs) > len(graph.all_inputs):
        raise TypeMismatch(
            f'inputs for graph "{graph.name}" are not a sequence of at most {len(graph.all_inputs)}',
            given=repr(inputs)[:200],
        )
    if captures is None:
        captures = captured_by(graph)
    known: dict[Value, Value | None] = {}
    given = list(inputs) + [None] * (len(graph.all_inputs) - len(inputs))
    for formal, value in zip((*graph.all_inputs, *graph.captures), (*given, *captures), strict=True):
        if value is None and formal.data is not None:
            value = interpreter.constant(formal.data.array(), formal.data.type.dtype)
        known[formal] = value

    def look_up(value: Value) -> Value | None:
        if value not in known:
            if value.data is None:
                raise InvalidCall(f'value "{value.name}" is not computed by graph "{graph.name}"')
            known[value] = interpreter.constant(value.data.array(), value.data.type.dtype)
        return known[value]

    for node in graph.nodes:
        results = _replay(interpreter, node, look_up, attributes or {})
        for output, result in zip(node.outputs, results, strict=False):
            if output is not None:
                known[output] = result
    return tuple(look_up(value) for value in graph.outputs)


def _replay(
    interpreter: Interpreter, node: Node, look_up: Callable[[Value], Any], values: Mapping[str, Any]
) -> Sequence[Value | None]:
    inputs = [None if v is None else look_up(v) for v in node.inputs]
    captured = [look_up(v) for v in node.captures]
    written = {}
    for name, attribute in node.attributes.items():
        reference = getattr(attribute, "refers_to", None)
        given = attribute if reference is None else values.get(reference)
        if given is not None:
            written[name] = reopened(given, captured, values) if isinstance(given, Graph) else given
    stand_in = Node(node.op, node.version, inputs, written, node.outputs, name=node.name)
    replaced = interpreter.replayed(stand_in) if isinstance(interpreter, Builder) else None
    if replaced is not None:
        return replaced
    op = known_op(stand_in)
    bound, complete = bind(stand_in)
    return interpreter.call(op, bound, complete, len(node.outputs))


def reopened(graph: Graph, captured: Sequence[Value], values: Mapping[str, Any]) -> Graph:
    """``graph`` retraced inside the graph under construction, with other captures."""
    return subgraph(
        lambda *all_inputs: inline(graph, all_inputs, attributes=values, captures=captured),
        [(v.name, v.type) for v in graph.all_inputs],
        name=graph.name,
    )
