"""Selection of the values saved for the backward pass."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

from tenonnx.extend import Graph, InvalidCall, Node, Op, TensorType, Value, find_rule, interpreting, known_op
from tenonnx.extend.transforms import Builder, Call, Rewriter, bind, foreseeing, infer_call, invoke, may_be_one


class Demand(NamedTuple):
    """The gradients requested of a call.

    ``outputs`` states which outputs may receive a cotangent. ``captures`` are the outer values that the subgraphs of
    the call use, in order; ``inputs`` are the inputs and captures that need a gradient.
    """

    outputs: tuple[bool, ...]
    captures: tuple[Value, ...]
    inputs: frozenset[Value]


class Application(NamedTuple):
    """A call that is differentiated as one op, whichever nodes compute it.

    ``node`` is named in messages. ``residuals`` are for its gradient rule: the outputs (a tuple if there
    are several), or what the op's ``residuals`` rule selected.
    """

    node: Node
    op: Op
    inputs: Sequence[Value | None]
    attributes: Mapping[str, Any]
    captures: Sequence[Value]
    outputs: Sequence[Value | None]
    residuals: Any

    @classmethod
    def of(cls, node: Node, builder: Builder) -> Application:
        """The application of ``node``, which keeps its outputs as residuals."""
        op = known_op(node)
        bound, attributes = bind(node)
        inputs = [builder.adopt(v) for v in bound]
        count = max(len(node.outputs), len(infer_call(op, inputs, attributes, len(node.outputs))))
        outputs = (*node.outputs, *[None] * (count - len(node.outputs)))
        return cls(node, op, inputs, attributes, node.captures, outputs, outputs[0] if count == 1 else outputs)

    @property
    def uses(self) -> tuple[Value, ...]:
        return (*(v for v in self.inputs if v is not None), *self.captures)

    def name_of(self, position: int) -> str:
        """Name of an input or, after the inputs, a capture, for messages."""
        if position < len(self.inputs):
            return f'"{self.op.signature.input_at(position).name}"'
        return f'"{self.captures[position - len(self.inputs)].name}" (used in a subgraph)'


#: A graph ready for a reverse sweep, and its steps in order: nodes, or applications replacing several nodes.
Prepared = tuple[Graph, list[Node | Application]]


def prepared(graph: Graph, of: Collection[Value], wrt: Collection[Value]) -> Prepared:
    """A copy of ``graph`` prepared for its gradient: ops on the path from ``wrt`` to ``of`` save their residuals.

    Ops without a VJP are expanded first, by their surrogate if they have one. Contents of values that depend on ``wrt``
    are unknown in the copy, so that nothing on the path is constant-folded.
    """
    path = _Path(graph, of, wrt)

    def expand(rewriter: Rewriter, call: Call) -> Sequence[Value | None] | None:
        off_path = call.node is not None and call.node not in path.nodes
        if off_path or find_rule(call.op, "vjp") is not None:
            return None
        surrogate = rewriter.ask("vjp.surrogate", call)
        return rewriter.expand(call) if surrogate is None and not call.op.primitive else surrogate

    rewriter = Rewriter(graph, expand)
    for value in path.reached:
        if _is_float(value):
            rewriter.copy(value)._replace_fields(data=None)
    expanded = rewriter.run()
    return _with_residuals(expanded, _Path(expanded, [rewriter.copy(v) for v in of], [rewriter.copy(v) for v in wrt]))


def dependents(nodes: Sequence[Node], values: Collection[Value]) -> set[Value]:
    """The values that depend on ``values`` through ``nodes``, including ``values``."""
    result = set(values)
    for node in nodes:
        if any(v in result for v in node.uses):
            result.update(v for v in node.outputs if v is not None)
    return result


class _Path:
    """Nodes between ``wrt`` and ``of``:

    ``nodes``, the values ``reached`` from ``wrt``, and those ``needed`` for ``of``.
    """

    def __init__(self, graph: Graph, of: Collection[Value], wrt: Collection[Value]) -> None:
        self.reached = dependents(graph.nodes, wrt)
        self.needed = set(of)
        self.nodes: set[Node] = set()
        for node in reversed(graph.nodes):
            if any(v in self.needed for v in node.outputs):
                self.needed.update(node.uses)
                if any(v in self.reached for v in node.uses):
                    self.nodes.add(node)


def _with_residuals(graph: Graph, path: _Path) -> Prepared:
    """``graph`` with every call on the path replaced by the result of its op's ``residuals`` rule, if any."""
    if not any(find_rule(known_op(node), "residuals") for node in path.nodes):
        return graph, list(graph.nodes)
    recorded: dict[int, tuple[int, Application]] = {}  # by index of the first node: the index after the last one

    def record(rewriter: Rewriter, call: Call) -> Sequence[Value | None] | None:
        node = call.node
        rule = find_rule(call.op, "residuals") if node in path.nodes else None
        if node is None or rule is None:
            return None
        captures = tuple(rewriter.copy(v) for v in node.captures)
        wanted = frozenset(rewriter.copy(v) for v in node.uses if v in path.reached and _is_float(v))
        demand = Demand(tuple(v in path.needed and _is_float(v) for v in node.outputs), captures, wanted)
        if not wanted or not any(demand.outputs):
            return None
        start = len(rewriter.graph.nodes)
        arguments = [demand, *call.inputs]
        with (
            interpreting(Builder(rewriter.graph, prefix=rewriter.prefix, fold=True)),
            foreseeing(node.title, arguments, call.attributes),
        ):
            found = invoke(call.op, rule, arguments, call.attributes, call.outputs)
        declared = [None if v is None else rewriter.copy(v) for v in node.outputs]
        outputs, kept = _checked_residuals(node, declared, found)
        end = len(rewriter.graph.nodes) + (outputs is None)  # the call itself follows the residuals
        given = declared if outputs is None else outputs
        recorded[start] = end, Application(node, call.op, call.inputs, call.attributes, captures, given, kept)
        return outputs

    ready = Rewriter(graph, record).run()
    steps: list[Node | Application] = []
    behind = 0
    for position, node in enumerate(ready.nodes):
        if position in recorded:
            behind, application = recorded[position]
            steps.append(application)
        elif position >= behind:
            steps.append(node)
    return ready, steps


def _checked_residuals(
    node: Node, declared: Sequence[Value | None], found: Sequence[Any]
) -> tuple[Sequence[Value | None] | None, Any]:
    """Outputs and residuals returned by the ``residuals`` rule of ``node``. Raises ``InvalidCall`` if malformed."""
    rule = f"{node.title}: the rule residuals did not return"
    if len(found) != 2 or not isinstance(found[0], tuple | list | None):
        what = f"{rule} a pair: a tuple of the outputs, or None to leave the call as it is, and what is kept"
        raise InvalidCall(what, given=repr(found)[:200])
    outputs, kept = found
    for position, value in enumerate(declared if outputs is not None else ()):
        given = outputs[position] if position < len(outputs) else None
        if value is not None and not (isinstance(given, Value) and may_be_one(given.type, value.type)):
            raise InvalidCall(f'{rule} for output "{value.name}" a value {value.type}', given=repr(given)[:200])
    return outputs, kept


def _is_float(value: Value | None) -> bool:
    return value is not None and isinstance(value.type, TensorType) and value.type.dtype.is_float
