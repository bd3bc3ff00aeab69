"""Traces with one dim fixed, so that loops over it are unrolled."""

from __future__ import annotations

import contextlib
import operator
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import sympy
import torch
from torch.fx import Graph, Node
from torch.fx.experimental.symbolic_shapes import ShapeEnv

aten = torch.ops.aten

#: Maximum length of a dim to which loops are unrolled.
LONGEST = 1024


@dataclass
class Decisions:
    """Sizes that a trace treated as constants, and comparisons of sizes that it decided, as expressions."""

    numbers: dict[sympy.Expr, int] = field(default_factory=dict)
    comparisons: dict[Any, bool] = field(default_factory=dict)


@dataclass
class Unrolled:
    """A functional trace at one ``length`` of a dim.

    ``symbols`` maps symbols of sizes to the placeholder and axis that have them, ``values`` to their sizes.
    """

    program: Any
    graph: Graph
    length: int
    symbol: sympy.Symbol
    symbols: Mapping[sympy.Symbol, tuple[str, int]]
    values: Mapping[sympy.Symbol, int]
    decisions: Decisions

    def at(self, expression: sympy.Expr) -> int:
        """The value of an expression in this trace."""
        return int(expression.xreplace({symbol: sympy.Integer(value) for symbol, value in self.values.items()}))


@contextlib.contextmanager
def noted(decisions: Decisions, guarded: bool = True) -> Iterator[None]:
    """Record the decisions of a trace. Without ``guarded``, example sizes decide without being fixed."""
    kind: Any = ShapeEnv
    evaluate = kind._evaluate_expr

    def decide(self: Any, expression: Any, *args: Any, **keywords: Any) -> Any:
        with contextlib.nullcontext() if guarded else self.suppress_guards():
            result = evaluate(self, expression, *args, **keywords)
        if not expression.is_number and expression.free_symbols <= self.backed_var_to_val.keys():
            if isinstance(result, sympy.Integer):
                decisions.numbers.setdefault(expression, int(result))
            elif result in (sympy.true, sympy.false):
                decisions.comparisons.setdefault(expression, bool(result))
        return result

    kind._evaluate_expr = decide
    try:
        yield
    finally:
        kind._evaluate_expr = evaluate


def unrolled(export: Callable[[], Any], name: str, axis: int, length: int) -> Unrolled | None:
    """A trace made by ``export``, with ``length`` in ``axis`` of the input ``name``. None for a static axis."""
    decisions = Decisions()
    with noted(decisions, guarded=False):
        program = export()
        program = program.run_decompositions({})
    graph = program.graph_module.graph
    places: dict[sympy.Symbol, tuple[str, int]] = {}
    values: dict[sympy.Symbol, int] = {}
    for node in graph.nodes:
        tensor = node.meta.get("val")
        if node.op != "placeholder" or not isinstance(tensor, torch.Tensor):
            continue
        for at, size in enumerate(tensor.shape):
            if isinstance(size, torch.SymInt) and isinstance(size.node.expr, sympy.Symbol):
                places.setdefault(size.node.expr, (node.name, at))
                values.setdefault(size.node.expr, int(size.node.hint))
    inputs: list[str] = list(program.graph_signature.user_inputs)
    placeholders = {node.name: node.meta.get("val") for node in graph.nodes if node.op == "placeholder"}
    if name not in inputs or not isinstance(size := placeholders[name].shape[axis], torch.SymInt):
        return None
    _clean(graph)
    return Unrolled(program, graph, length, size.node.expr, places, values, decisions)


#: Operations that only check something.
_CHECKS = ("_assert_scalar", "_assert_async", "sym_constrain_range", "_assert_tensor_metadata")


def _clean(graph: Graph) -> None:
    """Remove checks, no-op casts and unused nodes; replace sizes by expressions."""
    for node in list(graph.nodes):
        if node.op == "call_function" and (expression := _expression_of(node)) is not None:
            for user in list(node.users):
                put: Any = lambda each, node=node, replacement=expression: replacement if each is node else each  # noqa: E731
                user.args, user.kwargs = torch.fx.map_arg((user.args, user.kwargs), put)
            graph.erase_node(node)
            continue
        name = getattr(node.target, "__name__", "") if node.op == "call_function" else ""
        if name.partition(".")[0].startswith(_CHECKS):
            graph.erase_node(node)
        elif node.target in _PARTS:
            _take_apart(graph, node)
        elif (whole := _whole_of(node)) is not None:
            node.replace_all_uses_with(whole)
            graph.erase_node(node)
        elif node.target is aten.copy.default:
            onto, source = (each.meta["val"] for each in node.args[:2])
            if onto.dtype == source.dtype and list(map(int_of, onto.shape)) == list(map(int_of, source.shape)):
                node.replace_all_uses_with(node.args[1])
                graph.erase_node(node)
    remove_unread(graph)


def _whole_of(node: Node) -> Any:
    """The operand of a slice over a whole axis, or the value written to one; None for another operation."""
    if node.target not in (aten.slice.Tensor, aten.slice_scatter.default):
        return None
    writes = node.target is aten.slice_scatter.default
    given: list[Any] = list(node.args)[2 + writes :]
    usual: list[Any] = [None, None, 1]
    start, end, step = given + usual[len(given) :]
    if start not in (0, None) or end not in (None, 2**63 - 1) or step != 1:
        return None
    result: Any = node.args[writes]
    return result if result.meta["val"].dtype == node.meta["val"].dtype else None


#: Operations that return a list of parts of a tensor.
_PARTS = (aten.unbind.int, aten.split.Tensor)


def _take_apart(graph: Graph, node: Node) -> None:
    """Replace a split by one slice for each part, since the number of parts would vary with the length."""
    x, *rest = node.args
    size: Any = None if node.target is aten.unbind.int else rest.pop(0)
    axis = rest[0] if rest else 0
    for item in list(node.users):
        place: Any = item.args[1]
        with graph.inserting_before(item):
            if size is None:
                part = graph.call_function(aten.select.int, (x, axis, place))
            else:
                part = graph.call_function(aten.slice.Tensor, (x, axis, place * size, (place + 1) * size))
        part.meta = dict(item.meta)
        item.replace_all_uses_with(part)
        graph.erase_node(item)


def remove_unread(graph: Graph) -> None:
    """Remove calls with unused results."""
    for node in reversed(list(graph.nodes)):
        if node.op in ("call_function", "get_attr") and not node.users:
            graph.erase_node(node)


def int_of(size: Any) -> int:
    """The example value of a size."""
    return int(size.node.hint) if isinstance(size, torch.SymInt) else int(size)


def _expression_of(node: Any) -> sympy.Expr | int | None:
    """The expression of sizes that a node computes, None for other nodes."""
    value = node.meta.get("val") if isinstance(node, Node) else None
    if not isinstance(value, torch.SymInt) or not value.node.has_hint():
        return None
    result = sympy.sympify(value.node.expr)
    return int(result) if result.is_Integer else result


def lengths_for(first: Unrolled) -> tuple[int, int]:
    """Two lengths at which loops have different numbers of iterations, each of them several."""
    counts = [each for each in first.decisions.numbers if each.free_symbols == {first.symbol}]
    at: Callable[[Any, int], int] = lambda each, length: int(each.xreplace({first.symbol: sympy.Integer(length)}))  # noqa: E731
    rising = [each for each in counts if at(each, LONGEST) > at(each, 1)]
    begin = next((n for n in range(5, LONGEST) if all(at(each, n) >= 4 for each in rising)), 5)
    end = next(
        (n for n in range(begin + 2, LONGEST) if all(at(each, n) > at(each, begin) for each in rising)), begin + 2
    )
    return begin, end


def written_expression(graph: Graph, expression: sympy.Expr, symbols: Mapping[sympy.Symbol, Node]) -> Node | int:
    """Write nodes that compute an expression of sizes."""
    if expression.is_Integer:
        return int(expression)
    if isinstance(expression, sympy.Symbol):
        return symbols[expression]
    parts = [written_expression(graph, each, symbols) for each in expression.args]
    name = type(expression).__name__
    function: Any = {
        "Add": operator.add,
        "Mul": operator.mul,
        "FloorDiv": operator.floordiv,
        "CleanDiv": operator.floordiv,
        "Mod": operator.mod,
        "PythonMod": operator.mod,
        "Max": torch.sym_max,
        "Min": torch.sym_min,
    }[name]
    result = parts[0]
    for part in parts[1:]:
        result = graph.call_function(function, (result, part))
    return result
