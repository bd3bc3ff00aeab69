"""Modules with loops over a dim as scans, built from traces at two lengths."""

from __future__ import annotations

import copy
import inspect
import operator
from collections.abc import Mapping, Sequence
from typing import Any

import sympy
import torch
from torch._higher_order_ops.scan import scan
from torch.fx import Graph, GraphModule, Node
from torch.utils import _pytree as pytree

from tenonnx_torch.rerolling import Leaf, Loop, NotRerolled, Operation, flattened, is_number, rerolled, token_of
from tenonnx_torch.unrolled_traces import Unrolled, aten, written_expression

# ----- operations whose numbers depend on the iteration ---------------------------------------------------------------


def _select_at(x: torch.Tensor, axis: int, index: torch.Tensor) -> torch.Tensor:
    return x.index_select(axis, _from_start(x, axis, index.reshape(1))).squeeze(axis)


def _narrow_at(x: torch.Tensor, axis: int, start: torch.Tensor, length: Any) -> torch.Tensor:
    return x.index_select(axis, _from_start(x, axis, start + torch.arange(length)))


def _from_start(x: torch.Tensor, axis: int, places: torch.Tensor) -> torch.Tensor:
    """Non-negative indices; negative ones count from the end, or arise in the discarded iteration of an empty loop."""
    return torch.where(places < 0, places + x.shape[axis], places)


def _write_at(x: torch.Tensor, part: torch.Tensor, axis: int, start: torch.Tensor, length: Any) -> torch.Tensor:
    places = torch.arange(x.shape[axis]) - start
    inside = torch.logical_and(places >= 0, places < length)
    taken = part.index_select(axis, places.clamp(0, length - 1))
    return torch.where(inside.reshape([-1] + [1] * (x.ndim - 1 - axis % x.ndim)), taken, x)


def _select_written_at(x: torch.Tensor, part: torch.Tensor, axis: int, index: torch.Tensor) -> torch.Tensor:
    return _write_at(x, part.unsqueeze(axis), axis, index, 1)


#: Functions of numbers that accept tensors, too.
_ARITHMETIC: frozenset[Any] = frozenset(
    {operator.add, operator.sub, operator.mul, operator.floordiv, operator.mod, operator.neg}
)

#: Operations with a scalar argument, by name; PyTorch's function of that name also accepts a tensor there.
_WITH_SCALARS = frozenset(("add", "sub", "mul", "div", "rsub", "pow", "eq", "ne", "lt", "le", "gt", "ge", "remainder"))


def _varying(target: Any, leaves: Sequence[Any]) -> tuple[Any, tuple[Any, ...]]:
    """The function and arguments for an operation with varying numbers. Raises ``NotRerolled``."""
    if target is aten.select.int:
        return _select_at, tuple(leaves)
    if target is aten.select_scatter.default:
        return _select_written_at, tuple(leaves)
    if target in _ARITHMETIC:
        return target, tuple(leaves)
    name = str(target).split(".")[1] if str(target).startswith("aten.") else ""
    if name in _WITH_SCALARS and len(leaves) == 2:
        return getattr(torch, name), tuple(leaves)
    raise NotRerolled(f"{target} takes the number of the iteration")


# ----- bodies ---------------------------------------------------------------------------------------------------------


class _Body:
    """A loop's body as a module of the iteration, the states, outside values, and non-constant numbers.

    ``numbers`` has an entry for each number of the loop: a constant, ``"size"``, or ``"index"`` for a tensor.
    """

    def __init__(self, loop: Loop, outer: int, numbers: Sequence[int | str]) -> None:
        self.loop, self.graph, self.modules = loop, Graph(), dict[str, GraphModule]()
        self.iteration = self.graph.placeholder("iteration")
        self.states = {key: self.graph.placeholder(f"state_{k}") for k, key in enumerate(loop.states)}
        self.outer = [self.graph.placeholder(f"outer_{k}") for k in range(outer)]
        self.numbers: list[Any] = [
            each if isinstance(each, int) else self.graph.placeholder(f"number_{k}") for k, each in enumerate(numbers)
        ]
        self.indexes = {n for n, each in zip(self.numbers, numbers, strict=True) if each == "index"}
        self.remade: dict[int, Any] = {}
        self.results: list[Any] = []

    def module(self) -> GraphModule:
        for operation in self.loop.operations:
            self.results.append(self._written(operation))
        after = [self.results[place] if back == 1 else self.states[place, back - 1] for place, back in self.loop.states]
        found = [self.graph.call_function(torch.clone, (each,)) for each in after]
        found += [self.graph.call_function(torch.clone, (self.results[place],)) for place in self.loop.rows]
        self.graph.output(tuple(found))
        self.graph.eliminate_dead_code()
        return GraphModule(self.modules, self.graph)

    def _written(self, operation: Operation) -> Any:
        try:
            return self._call(operation)
        except NotRerolled as error:
            error.line = error.line or self.loop.line
            raise

    def _call(self, operation: Operation) -> Any:
        leaves = [self._value(leaf) for leaf in operation.leaves]
        if operation.target is None:  # a row that is written to an outside tensor
            return leaves[0]
        if isinstance(operation.target, Loop):
            (count, states, outer, numbers), _ = pytree.tree_unflatten(leaves, operation.tree)
            return write_loop(
                self.graph, self.modules, operation.target, count, states, outer, numbers, indexes=self.indexes
            )
        if not any(self._varies(leaf) for leaf in leaves):
            args, kwargs = pytree.tree_unflatten(leaves, operation.tree)
            return self.graph.call_function(operation.target, args, kwargs)
        if operation.target in (aten.slice.Tensor, aten.slice_scatter.default):
            return self._slice(operation, leaves)
        target, args = _varying(operation.target, leaves)
        result = self.graph.call_function(target, args)
        if target in _ARITHMETIC:
            self.indexes.add(result)
        return result

    def _slice(self, operation: Operation, leaves: list[Any]) -> Any:
        writes = operation.target is aten.slice_scatter.default
        parts, (axis, start, *_) = leaves[: 1 + writes], leaves[1 + writes :]
        begin, close, *stride = (*operation.leaves[2 + writes :], Leaf("literal", None))
        ends = {begin.kind, close.kind} <= {"number", "index"} and begin.step == close.step
        if not ends or any(leaf.value is not None and self._value(leaf) != 1 for leaf in stride):
            raise NotRerolled("a slice has another length in each iteration")
        first, last = (self.numbers[leaf.value] for leaf in (begin, close))
        whole = isinstance(first, int) and isinstance(last, int)
        length = last - first if whole else self.graph.call_function(operator.sub, (last, first))
        return self.graph.call_function(_write_at if writes else _narrow_at, (*parts, axis, start, length))

    def _varies(self, value: Any) -> bool:
        return isinstance(value, Node) and value in self.indexes

    def _value(self, leaf: Any) -> Any:
        if leaf.kind == "literal":
            return leaf.value
        if leaf.kind == "inner":
            return self.results[leaf.value]
        if leaf.kind == "state":
            return self.states[leaf.value]
        if leaf.kind == "outer":
            return self.outer[leaf.value]
        if leaf.kind == "number":
            return self.numbers[leaf.value]
        if leaf.kind == "remade":
            if leaf.value not in self.remade:
                self.remade[leaf.value] = self._written(self.loop.remade[leaf.value])
            return self.remade[leaf.value]
        index = self.iteration
        if leaf.step != 1:
            index = self.graph.call_function(operator.mul, (index, leaf.step))
        if self.numbers[leaf.value] != 0:
            index = self.graph.call_function(operator.add, (index, self.numbers[leaf.value]))
        self.indexes.add(index)
        return index


def write_loop(
    graph: Graph,
    modules: dict[str, GraphModule],
    loop: Loop,
    count: Any,
    states: Sequence[Any],
    outer: Sequence[Any],
    numbers: Sequence[Any],
    indexes: Any = frozenset(),
    may_be_empty: bool = False,
) -> Node:
    """Write a loop into a graph, with its body in ``modules``; ``indexes`` are nodes that vary in an enclosing loop.

    Raises ``NotRerolled`` where that is impossible.
    """
    if count in indexes:
        raise NotRerolled("its number of iterations differs in each iteration of the loop around it", None)
    kinds = ["index" if each in indexes else "size" if isinstance(each, Node) else each for each in numbers]
    name = f"body_{len(modules)}"
    modules[name] = _Body(loop, len(outer), kinds).module()
    varying = [each for each in numbers if isinstance(each, Node)]
    body = graph.get_attr(name) if isinstance(graph, Graph) else None
    run = run_loop_or_none if may_be_empty else run_loop
    return graph.call_function(run, (body, count, list(states), [*outer, *varying]))


def run_loop(body: Any, count: Any, states: Sequence[Any], outer: Sequence[Any]) -> Any:
    """The final states and all rows of a loop of ``count`` iterations, at least one."""
    state_count = len(states)

    def step(given: Any, iteration: Any) -> Any:
        found = body(iteration, *given[:state_count], *outer)
        return _after(found, state_count, given), tuple(found[state_count:])

    last, rows = _scan(step, _starts(states), torch.arange(count))
    return (*last[:state_count], *rows)


def run_loop_or_none(body: Any, count: Any, states: Sequence[Any], outer: Sequence[Any]) -> Any:
    """As ``run_loop``, where ``count`` may be 0: computes one more iteration, and discards it."""
    state_count = len(states)
    places = torch.arange(count + 1)
    last_place = places[-1] - 1

    def step(given: Any, iteration: Any) -> Any:
        found = body(iteration.minimum(last_place), *given[:state_count], *outer)
        kept = [
            torch.where(iteration <= last_place, new, old) for new, old in zip(found[:state_count], given, strict=False)
        ]
        return _after(kept, state_count, given), tuple(found[state_count:])

    last, rows = _scan(step, _starts(states), places)
    return (*last[:state_count], *(each[:count] for each in rows))


def _starts(states: Sequence[Any]) -> tuple[Any, ...]:
    """Initial states; a dummy if there are none, since a scan requires one."""
    return tuple(each.clone() for each in states) or (torch.zeros(()),)


def _after(found: Sequence[Any], state_count: int, given: Sequence[Any]) -> tuple[Any, ...]:
    return tuple(found[:state_count]) or (given[0].clone(),)


def _scan(step: Any, starts: Any, places: torch.Tensor) -> Any:
    if torch.compiler.is_compiling() or isinstance(places.shape[0], torch.SymInt):
        return scan(step, starts, places)
    rows, carried = [], starts
    for place in places:  # computed, not traced
        carried, row = step(carried, place)
        rows.append(row)
    return carried, [torch.stack(each) for each in zip(*rows, strict=True)]


# ----- modules --------------------------------------------------------------------------------------------------------


def module_of(module: torch.nn.Module, first: Unrolled, second: Unrolled) -> tuple[torch.nn.Module, list[Loop]]:
    """A module with the parameters of ``module`` that computes by loops. Raises ``NotRerolled`` naming a line."""
    loops = rerolled(first.graph, second.graph)
    if not loops:
        raise NotRerolled("no part of the trace repeats")
    signature = first.program.graph_signature
    if signature.buffers_to_mutate or signature.user_inputs_to_mutate:
        raise NotRerolled("the module writes to its buffers or inputs")
    calls = _Writer(first, second).module()
    shadow = copy.copy(module)
    kind = type(module)
    shadow.__class__ = type(kind.__name__, (kind,), {"forward": _forward(module, first.program, calls)})
    return shadow, loops


def _forward(module: torch.nn.Module, program: Any, calls: GraphModule) -> Any:
    signature = program.graph_signature
    state_names = {**signature.inputs_to_parameters, **signature.inputs_to_buffers}
    inputs = list(signature.user_inputs)
    names = [node.name for node in program.graph_module.graph.nodes if node.op == "placeholder"]

    def forward(self: Any, *args: Any, **kwargs: Any) -> Any:
        flat, _ = pytree.tree_flatten((args, program_order(kwargs)))
        own = {
            **dict(self.named_parameters(remove_duplicate=False)),
            **dict(self.named_buffers(remove_duplicate=False)),
        }
        given = dict(zip(inputs, flat, strict=True))
        constants = signature.inputs_to_lifted_tensor_constants
        found = calls(
            *(
                given[n]
                if n in given
                else own[state_names[n]]
                if n in state_names and state_names[n] in own
                else program.constants[constants[n] if n in constants else state_names[n]]
                for n in names
            )
        )
        return pytree.tree_unflatten(found, program.call_spec.out_spec)

    def program_order(kwargs: Mapping[str, Any]) -> dict[str, Any]:
        order = program.call_spec.in_spec.child(1).context or list(kwargs)
        return {name: kwargs[name] for name in order}

    own = inspect.Parameter("self", inspect.Parameter.POSITIONAL_ONLY)
    known = inspect.signature(module.forward)
    vars(forward)["__signature__"] = known.replace(parameters=[own, *known.parameters.values()])
    return forward


class _Writer:
    """The graph of a module from two rerolled traces; numbers that differ between them are computed from sizes."""

    def __init__(self, first: Unrolled, second: Unrolled) -> None:
        self.first, self.second = first, second
        self.graph, self.modules = Graph(), dict[str, GraphModule]()
        self.values: dict[Node, Any] = {}
        self.sizes: dict[sympy.Symbol, Node] = {}

    def module(self) -> GraphModule:
        pairs = [list(trace.graph.nodes) for trace in (self.first, self.second)]
        for one, other in zip(*pairs, strict=False):
            if one.op != other.op or (one.op == "call_function" and token_of(one) != token_of(other)):
                raise NotRerolled("it computes other things at another length", one)
            if one.op == "placeholder":
                self.values[one] = self.graph.placeholder(one.name)
            elif one.op == "output":
                self.graph.output([self._value(leaf, leaf, one) for leaf in flattened(one)[0]])
            elif one.op == "call_function":
                self.values[one] = self._call(one, other)
            else:
                raise NotRerolled("a part of the module is a subgraph", one)
        if len(pairs[0]) != len(pairs[1]):
            raise NotRerolled("it computes other things at another length")
        return GraphModule(self.modules, self.graph)

    def _call(self, one: Node, other: Node) -> Any:
        (leaves, tree), (others, _) = flattened(one), flattened(other)
        values = [self._value(a, b, one) for a, b in zip(leaves, others, strict=True)]
        args, kwargs = pytree.tree_unflatten(values, tree)
        if not isinstance(one.target, Loop):
            return self.graph.call_function(one.target, args, kwargs)
        least = self._expression(leaves[0], others[0], one).xreplace({self.first.symbol: sympy.Integer(1)})
        try:
            count, states, outer, numbers = args
            return write_loop(
                self.graph, self.modules, one.target, count, states, outer, numbers, may_be_empty=least == 0
            )
        except NotRerolled as error:
            error.line = error.line or one.target.line
            raise

    def _value(self, one: Any, other: Any, node: Node) -> Any:
        if isinstance(one, Node):
            return self.values[one]
        if not is_number(one) or (type(one) is int and one == other):
            return one
        if isinstance(one, sympy.Expr):
            return written_expression(self.graph, one, _Sizes(self))
        return written_expression(self.graph, self._expression(one, other, node), _Sizes(self))

    def _expression(self, one: int, other: int, node: Node) -> sympy.Expr:
        """The simplest expression of known sizes that has these two values."""
        symbol, found = self.first.symbol, list[Any]()
        for base in (symbol, *self.first.decisions.numbers):
            if base.free_symbols != {symbol}:
                continue
            a, b = self.first.at(base), self.second.at(base.xreplace({symbol: self.second.symbol}))
            if a != b and (other - one) % (b - a) == 0:
                factor = (other - one) // (b - a)
                found.append((abs(factor) + abs(one - factor * a), len(found), factor * base + (one - factor * a)))
        if not found:
            raise NotRerolled(f"a number is {one} and {other} at two lengths, which follows from neither", node)
        return min(found, key=lambda each: each[:2])[2]


class _Sizes(dict[Any, Any]):
    """Nodes of sizes by symbol, created on demand."""

    def __init__(self, writer: _Writer) -> None:
        super().__init__()
        self.writer = writer

    def __getitem__(self, symbol: Any) -> Any:
        writer = self.writer
        if symbol not in writer.sizes:
            name, axis = writer.first.symbols[symbol]
            held = next(value for node, value in writer.values.items() if node.name == name)
            writer.sizes[symbol] = writer.graph.call_function(aten.sym_size.int, (held, axis))
        return writer.sizes[symbol]
