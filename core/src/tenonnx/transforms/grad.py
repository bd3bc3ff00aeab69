"""Gradients: reverse mode, graph to graph. The result is an ordinary graph."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from tenonnx.errors import InvalidCall, NotDifferentiable
from tenonnx.graph.graph import Graph
from tenonnx.graph.types import TensorType
from tenonnx.graph.values import Node, Value, operator
from tenonnx.op.binding import bind, foreseeing, invoke, known_op
from tenonnx.op.build import Builder
from tenonnx.op.call import interpreting
from tenonnx.op.graph_inference import infer
from tenonnx.op.infer import infer_call
from tenonnx.op.op import Op
from tenonnx.op.rules import find_rule
from tenonnx.transforms.decompose import refuse_opaque
from tenonnx.transforms.prune import drop_dead_nodes
from tenonnx.transforms.rewrite import Call, Rewriter, copy_graph


def grad(
    graph: Graph,
    of: str | Value | Sequence[str | Value],
    wrt: str | Value | Sequence[str | Value],
    *,
    seeds: Mapping[str, str] | None = None,
    strict: bool = True,
) -> Graph:
    """``graph`` with an output ``{name}/grad`` more for each value named in ``wrt``: the gradient of the sum of ``of``.

    ``of`` names scalars; a value stands for its name. With ``seeds``, mapping a name of ``of`` to a new graph input,
    that value may have any shape and the input is its cotangent: the outputs are then vector-Jacobian products. Ops
    without a VJP are expanded first and their bodies differentiated. A value on which ``of`` does not depend has the
    gradient zero; one on which
    it depends by steps alone, such as those of ArgMax, has it unless ``strict``. Raises ``NotDifferentiable`` naming
    every node that breaks a path, ``InvalidCall`` for unknown names and for an ``of`` that is no scalar.
    """
    targets, names = _names(of), _names(wrt)
    seeds = seeds or {}
    refuse_opaque(graph, "differentiated")
    infer(graph)
    _check_names(graph, targets, names, seeds)
    contents = {value.name: value.data for value in graph.values() if value.name in names}
    source = copy_graph(graph)
    values = {value.name: value for value in source.values()}
    ready = _expanded(source, [values[name] for name in targets], [values[name] for name in names])
    values = {value.name: value for value in ready.values()}
    sweep = _Sweep(ready)
    with interpreting(sweep.builder):
        for name in targets:
            given = seeds.get(name)
            sweep.seed(values[name], None if given is None else ready.input(given, values[name].tensor))
        sweep.run([values[name] for name in names])
        if strict:
            sweep.refuse_breaks([values[name] for name in names])
        found = [sweep.gradient(values[name]) for name in names]
    with interpreting(Builder(ready)):
        for name, gradient in zip(names, found, strict=True):
            output = operator("identity", gradient)
            output.name = ready.unique_name(f"{name}/grad")
            ready.outputs.append(output)
    for name in names:
        values[name].data = contents[name]
    drop_dead_nodes(ready)
    return ready


def _names(given: str | Value | Sequence[str | Value]) -> list[str]:
    several = [given] if isinstance(given, str | Value) else given
    return [each.name if isinstance(each, Value) else each for each in several]


def pullback(graph: Graph, of: Sequence[int], wrt: Sequence[int]) -> Graph:
    """A subgraph together with its gradient, for a vjp rule to use parts of.

    ``of`` are positions of outputs, ``wrt`` positions of inputs and, after them, captures. The result takes the inputs,
    the captures and a cotangent for each of ``of``; it gives the outputs, then the gradient of each of ``wrt``.
    """
    source = copy_graph(graph)
    inputs = (*source.all_inputs, *source.captures)
    ready = _expanded(source, [source.outputs[p] for p in of], [inputs[p] for p in wrt])
    ready.all_inputs, ready.captures = [*ready.all_inputs, *ready.captures], []
    values = [ready.all_inputs[p] for p in wrt]
    sweep = _Sweep(ready)
    with interpreting(sweep.builder):
        for position in of:
            value = ready.outputs[position]
            cotangent = Value(ready.unique_name(f"{value.name}/cotangent"), value.type, graph=ready)
            ready.all_inputs.append(cotangent)
            sweep.seed(value, cotangent)
        sweep.run(values)
        ready.outputs += [sweep.gradient(value) for value in values]
    drop_dead_nodes(ready)
    return ready


def dependents(nodes: Sequence[Node], values: Collection[Value]) -> set[Value]:
    """The values that depend on ``values`` by way of ``nodes``, themselves included."""
    found = set(values)
    for node in nodes:
        if any(v in found for v in node.uses):
            found.update(v for v in node.outputs if v is not None)
    return found


def _check_names(graph: Graph, targets: Sequence[str], names: Sequence[str], seeds: Mapping[str, str]) -> None:
    values = {value.name: value for value in graph.values()}
    for name in (*targets, *names):
        if name not in values:
            raise InvalidCall(f'no value "{name}" in graph "{graph.name}"', available=", ".join(list(values)[:20]))
    for name in (*targets, *names):
        kind = values[name].type
        if not isinstance(kind, TensorType) or not kind.dtype.is_float:
            raise NotDifferentiable(
                f'value "{name}" must be a floating-point tensor to have a gradient', given=str(kind)
            )
    for name in targets:
        kind = values[name].type
        shape = kind.shape if isinstance(kind, TensorType) else None
        if name not in seeds and shape is not None and any(d != 1 for d in shape):
            raise InvalidCall(
                f'a gradient is that of a scalar, and "{name}" is {kind}',
                do="reduce it to one element, or give its cotangent as an input: --cotangent / seeds=",
            )


def _active_nodes(graph: Graph, of: Collection[Value], wrt: Collection[Value]) -> set[Node]:
    """The nodes on a path from ``wrt`` to ``of``."""
    reached = dependents(graph.nodes, wrt)
    needed = set(of)
    active = set()
    for node in reversed(graph.nodes):
        if any(v in needed for v in node.outputs):
            needed.update(node.uses)
            if any(v in reached for v in node.uses):
                active.add(node)
    return active


def _expanded(graph: Graph, of: Collection[Value], wrt: Collection[Value]) -> Graph:
    """A copy of ``graph`` in which every composite op on the path that has no VJP is expanded.

    ``graph`` forgets the contents of what depends on ``wrt``, so that nothing on the path is folded.
    """
    active = _active_nodes(graph, of, wrt)
    for value in dependents(graph.nodes, wrt):
        if isinstance(value.type, TensorType) and value.type.dtype.is_float:
            value.data = None

    def decide(rewriter: Rewriter, call: Call) -> Sequence[Value | None] | None:
        off_path = call.node is not None and call.node not in active
        if off_path or call.op.primitive or find_rule(call.op, "vjp") is not None:
            return None
        return rewriter.expand(call)

    return Rewriter(graph, decide).run()


class _Sweep:
    """One reverse sweep: cotangents flow from outputs to inputs, node by node."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.builder = Builder(graph, prefix="gradient", fold=True)
        self.cotangents: dict[Value, Value] = {}
        self.broken: list[str] = []
        self.steps: list[tuple[Node, Value]] = []

    def seed(self, value: Value, cotangent: Value | None) -> None:
        self.builder.prefix = f"{value.name}/seed"
        self._accumulate(value, operator("ones_like", value) if cotangent is None else cotangent)

    def run(self, wrt: Sequence[Value]) -> None:
        """Carry the cotangents back to ``wrt``. Raises ``NotDifferentiable`` with all the nodes that cannot."""
        wanted = dependents(self.graph.nodes, wrt)
        for node in list(reversed(self.graph.nodes)):
            reached = any(v in self.cotangents for v in node.outputs if v is not None)
            if reached and any(v in wanted for v in node.uses):
                self._carry(node, wanted)
        if self.broken:
            raise NotDifferentiable("the path must have a gradient all along", given="\n".join(self.broken))

    def refuse_breaks(self, values: Sequence[Value]) -> None:
        """Raise ``NotDifferentiable`` for values that have influence, but no path along which it is differentiable."""
        by_contents = [n for n in self.graph.nodes if any(v is not None and v.elements is None for v in n.outputs)]
        lost: list[str] = []
        breaks: dict[str, None] = {}
        for value in values:
            if value not in self.cotangents:
                reached = dependents(by_contents, [value])
                found = {_no_gradient(node, [step]): None for node, step in self.steps if step in reached}
                lost += [value.name] if found else []
                breaks |= found
        if lost:
            error = NotDifferentiable(
                f"there must be a differentiable path to {', '.join(lost)}",
                given="\n".join(breaks),
                do="leave out what has none, or take zero for its gradient (strict=False)",
            )
            error.names = tuple(lost)
            raise error

    def gradient(self, value: Value) -> Value:
        found = self.cotangents.get(value)
        if found is not None:
            return found
        self.builder.prefix = f"{value.name}/zero"
        return operator("zeros_like", value)  # type: ignore[no-any-return]

    def _carry(self, node: Node, wanted: set[Value]) -> None:
        op = known_op(node)
        rule = find_rule(op, "vjp")
        if rule is None:
            self.broken.append(_no_gradient(node, [v for v in node.uses if v in wanted]))
            return
        self.builder.prefix = f"{node.name or node.op_type}/vjp"
        bound, attributes = bind(node)
        inputs = [self.builder.adopt(v) for v in bound]
        count = max(len(node.outputs), len(infer_call(op, inputs, attributes, len(node.outputs))))
        outputs: list[Value | None] = [*node.outputs, *[None] * (count - len(node.outputs))]
        given = [None if v is None else self.cotangents.get(v) for v in outputs]
        g: Any = given[0] if count == 1 else tuple(given)
        y: Any = outputs[0] if count == 1 else tuple(outputs)
        captures = node.captures  # the rule of a loop may let the node give more, and capture otherwise
        if node.subgraphs:
            attributes |= {"_captures": captures, "_wanted": wanted}
        with foreseeing(node.title, [g, y, *inputs], attributes):
            found = invoke(op, rule, [g, y, *inputs], attributes, len(node.outputs))
        for value, gradient in zip((*inputs, *captures), found, strict=False):
            if value is None or value not in wanted:
                continue
            if gradient is None:
                self.steps.append((node, value))
            else:
                self._accumulate(value, self._summed(op, gradient, value))

    def _summed(self, op: Op, gradient: Value, value: Value) -> Value:
        """The gradient in the shape of ``value``, where the op broadcast it."""
        same = gradient.rank is not None and gradient.tensor.shape == value.tensor.shape
        known = same and all(d is not None for d in gradient.shape)
        return gradient if known or not op.broadcasts else operator("sum_to", gradient, value)

    def _accumulate(self, value: Value, gradient: Value) -> None:
        held = self.cotangents.get(value)
        self.cotangents[value] = gradient if held is None else operator("add", held, gradient)


def _no_gradient(node: Node, inputs: Sequence[Value]) -> str:
    return f"{node.title} has no gradient for input {', '.join(repr(v) for v in inputs)}"
