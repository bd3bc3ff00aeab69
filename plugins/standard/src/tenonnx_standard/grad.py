"""Gradients: reverse mode, graph to graph. The result is an ordinary graph."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tenonnx.extend import (
    DType,
    Graph,
    InvalidCall,
    Node,
    NotDifferentiable,
    TensorType,
    Value,
    copy_graph,
    counted,
    find_rule,
    interpreting,
    operators,
)
from tenonnx.extend.transforms import (
    Builder,
    drop_dead_nodes,
    foreseeing,
    in_registry_of_graph,
    infer,
    invoke,
    leaving_defaults,
    refuse_opaque,
)
from tenonnx_standard.residuals import Application, dependents, prepared


@leaving_defaults
@in_registry_of_graph
def grad(
    graph: Graph,
    of: str | Value | Sequence[str | Value],
    wrt: str | Value | Sequence[str | Value],
    *,
    seeds: Mapping[str, str] | None = None,
    strict: bool = True,
) -> Graph:
    """A graph with an additional output ``{name}/grad`` for each value in ``wrt``: the gradient of the sum of ``of``.

    ``of`` and ``wrt`` contain names or values. Values in ``of`` are scalars; with ``seeds``, which maps a name of
    ``of`` to a new graph input, the value may have any shape and the input is its cotangent, so that outputs are
    vector-Jacobian products. Bodies of ops without a VJP are expanded and differentiated. A value that ``of`` does not
    depend on has a zero gradient; one that it depends on only through piecewise constant ops, such as ArgMax, does too,
    unless ``strict``.

    Raises ``NotDifferentiable`` naming every node that breaks a path, ``InvalidCall`` for unknown names, for a value in
    ``of`` that is neither a scalar nor in ``seeds``, and for a gradient rule that returns wrong gradients.
    """
    targets, names = _names(of), _names(wrt)
    seeds = seeds or {}
    refuse_opaque(graph, "differentiated")
    source = copy_graph(graph)
    infer(source)
    by_name = {value.name: value for value in source.values()}
    _check_names(source, by_name, targets, names, seeds)
    ready, steps = prepared(source, [by_name[name] for name in targets], [by_name[name] for name in names])
    values = {value.name: value for value in ready.values()}
    sweep = _Sweep(ready, steps)
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
            output = operators().identity(gradient)
            output._replace_fields(name=ready.unique_name(f"{name}/grad"))
            ready.outputs.append(output)
    for name in names:
        if by_name[name].is_constant:
            values[name]._replace_fields(data=by_name[name].data)
    drop_dead_nodes(ready)
    return ready


def _names(given: str | Value | Sequence[str | Value]) -> list[str]:
    several = [given] if isinstance(given, str | Value) else given
    return [each.name if isinstance(each, Value) else each for each in several]


@in_registry_of_graph
def pullback(graph: Graph, of: Sequence[int], wrt: Sequence[int]) -> Graph:
    """A subgraph together with its gradient, for use in gradient rules.

    ``of`` are positions of outputs, ``wrt`` positions of inputs and, after them, captures. The result takes the inputs,
    the captures and a cotangent for each of ``of`` (float32 for quantized values). It returns the outputs, then the
    gradient of each of ``wrt``.
    """
    inputs = (*graph.all_inputs, *graph.captures)
    ready, steps = prepared(graph, [graph.outputs[p] for p in of], [inputs[p] for p in wrt])
    ready.all_inputs, ready.captures = [*ready.all_inputs, *ready.captures], []
    values = [ready.all_inputs[p] for p in wrt]
    sweep = _Sweep(ready, steps)
    with interpreting(sweep.builder):
        for position in of:
            value = ready.outputs[position]
            kind = value.tensor if value.tensor.dtype.is_float else value.tensor.with_dtype(DType.float32)
            cotangent = Value(ready.unique_name(f"{value.name}/cotangent"), kind, graph=ready)
            ready.all_inputs.append(cotangent)
            sweep.seed(value, cotangent)
        sweep.run(values)
        ready.outputs += [sweep.gradient(value) for value in values]
    drop_dead_nodes(ready)
    return ready


def _check_names(
    graph: Graph, values: Mapping[str, Value], targets: Sequence[str], names: Sequence[str], seeds: Mapping[str, str]
) -> None:
    for name in (*targets, *names):
        kind = (values[name] if name in values else graph.find(name)).type  # raises with similar names
        if not isinstance(kind, TensorType) or not kind.dtype.is_float:
            raise NotDifferentiable(
                f'value "{name}" has no gradient: it is not a floating-point tensor', given=str(kind)
            )
    for name in targets:
        kind = values[name].type
        shape = kind.shape if isinstance(kind, TensorType) else None
        if name not in seeds and shape is not None and any(d != 1 for d in shape):
            raise InvalidCall(
                f'cannot differentiate "{name}" of type {kind}: it is not a scalar and has no cotangent',
                do="reduce it to one element, or give its cotangent as an input: seeds= (--cotangent)",
            )


class _Sweep:
    """Reverse-mode sweep: propagates cotangents from outputs to inputs, step by step."""

    def __init__(self, graph: Graph, steps: Sequence[Node | Application]) -> None:
        self.graph = graph
        self.steps = steps
        self.builder = Builder(graph, prefix="gradient", fold=True)
        self.cotangents: dict[Value, Value] = {}
        self.broken: list[Application] = []
        self.breaks: list[tuple[Node, Value]] = []

    def seed(self, value: Value, cotangent: Value | None) -> None:
        self.builder.prefix = f"{value.name}/seed"
        self._accumulate(value, operators().ones_like(value) if cotangent is None else cotangent)

    def run(self, wrt: Sequence[Value]) -> None:
        """Propagate cotangents back to ``wrt``. Raises ``NotDifferentiable`` with all nodes that cannot."""
        wanted = dependents(self.graph.nodes, wrt)
        for step in reversed(self.steps):
            reached = any(v in self.cotangents for v in step.outputs if v is not None)
            if reached and any(v in wanted for v in step.uses):
                application = step if isinstance(step, Application) else Application.of(step, self.builder)
                self._propagate(application, wanted)
        if self.broken:
            given = [_no_gradient(each.node, [v for v in each.uses if v in wanted]) for each in self.broken]
            error = NotDifferentiable("an op on the path is not differentiable", given="\n".join(given))
            behind = _sources(self.graph.nodes, {v for each in self.broken for v in each.uses})
            error.names = tuple(value.name for value in wrt if value in behind)
            raise error

    def refuse_breaks(self, values: Sequence[Value]) -> None:
        """Raise ``NotDifferentiable`` for values that affect the outputs, but not through any differentiable path."""
        by_contents = [
            n for n in self.graph.nodes if any(v is not None and v.symbolic_contents is None for v in n.outputs)
        ]
        behind = _sources(by_contents, {value for _, value in self.breaks})
        lost = [value for value in values if value not in self.cotangents and value in behind]
        if lost:
            reached = dependents(by_contents, lost)
            breaks = dict.fromkeys(_no_gradient(node, [at]) for node, at in self.breaks if at in reached)
            error = NotDifferentiable(
                f"no differentiable path leads to {', '.join(value.name for value in lost)}",
                given="\n".join(breaks),
                do="leave out what has none, or take zero for its gradient (strict=False)",
            )
            error.names = tuple(value.name for value in lost)
            raise error

    def gradient(self, value: Value) -> Value:
        result = self.cotangents.get(value)
        if result is not None:
            return result
        self.builder.prefix = f"{value.name}/zero"
        return operators().zeros_like(value)  # type: ignore[no-any-return]

    def _propagate(self, application: Application, wanted: set[Value]) -> None:
        op, node = application.op, application.node
        rule = find_rule(op, "vjp")
        if rule is None:
            self.broken.append(application)
            return
        self.builder.prefix = f"{node.name or node.op_type}/vjp"
        given = [None if v is None else self.cotangents.get(v) for v in application.outputs]
        g: Any = given[0] if len(given) == 1 else tuple(given)
        arguments, attributes = [g, application.residuals, *application.inputs], application.attributes
        with foreseeing(node.title, arguments, attributes):
            found = invoke(op, rule, arguments, attributes, len(node.outputs))
        targets = (*application.inputs, *application.captures)
        if len(found) != len(targets):
            count = counted(len(targets), "input")
            raise InvalidCall(
                f"{node.title}: the gradient rule did not return a gradient or None for each of {count}",
                given=counted(len(found), "gradient"),
                do="return None for what has no gradient, and for inputs that the call leaves out",
            )
        for position, (value, gradient) in enumerate(zip(targets, found, strict=True)):
            if value is None or value not in wanted:
                continue
            if gradient is None:
                self.breaks.append((node, value))
            else:
                self._accumulate(value, self._fitting(application, position, gradient, value))

    def _fitting(self, application: Application, position: int, gradient: Any, value: Value) -> Value:
        """``gradient`` summed to the shape of ``value`` if the op broadcast it. Raises if it cannot be its gradient."""
        kind, wanted = getattr(gradient, "type", None), value.tensor
        broadcasts = application.op.broadcasts
        if not isinstance(kind, TensorType) or not _may_be_gradient(kind, wanted, broadcasts):
            name = application.name_of(position)
            cast = isinstance(kind, TensorType) and kind.dtype is not wanted.dtype
            do = f"cast it to {wanted.dtype}" if cast else "sum what was broadcast, with ops.sum_to(gradient, input)"
            raise InvalidCall(
                f"{application.node.title}: the gradient of input {name} is not {wanted}",
                given=repr(gradient),
                do=f"{do}, in the gradient rule of the op",
            )
        same = kind.shape is not None and kind.shape == wanted.shape and None not in kind.shape
        return gradient if same or not broadcasts else operators().sum_to(gradient, value)  # type: ignore[no-any-return]

    def _accumulate(self, value: Value, gradient: Value) -> None:
        earlier = self.cotangents.get(value)
        self.cotangents[value] = gradient if earlier is None else operators().gradient_sum(earlier, gradient)


def _sources(nodes: Sequence[Node], values: set[Value]) -> set[Value]:
    """The values on which ``values`` depend through ``nodes``, including themselves."""
    result = set(values)
    for node in reversed(nodes):
        if any(v in result for v in node.outputs):
            result.update(node.uses)
    return result


def _may_be_gradient(found: TensorType, wanted: TensorType, broadcasts: bool) -> bool:
    """Whether a value of type ``found`` can be the gradient of a value of type ``wanted``.

    The gradient of quantized values keeps the float type of the dequantized ones.
    """
    quantized = not wanted.dtype.is_float or wanted.dtype.bits < 16
    if found.dtype is not wanted.dtype and not (quantized and found.dtype.is_float):
        return False
    if found.shape is None or wanted.shape is None:
        return True
    if len(found.shape) != len(wanted.shape):
        return broadcasts and len(found.shape) > len(wanted.shape)
    pairs = zip(found.shape, wanted.shape, strict=True)
    return broadcasts or all(a == b or not (isinstance(a, int) and isinstance(b, int)) for a, b in pairs)


def _no_gradient(node: Node, inputs: Sequence[Value]) -> str:
    return f"{node.title} has no gradient for input {', '.join(repr(v) for v in inputs)}"
