"""Evaluation: calls on concrete contents, by numpy rules if available, else by bodies."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tenonnx import limits
from tenonnx.errors import TypeMismatch, UnsupportedOp
from tenonnx.graph.constants import ArrayConstant
from tenonnx.graph.dtypes import DType
from tenonnx.graph.graph import Graph, Value
from tenonnx.graph.training import Role
from tenonnx.graph.types import MapType, OptionalType, SequenceType, TensorType, Type
from tenonnx.op.binding import UNFORESEEN, bind, cannot_compute, invoke, known_op, pad
from tenonnx.op.call import constant_value, interpreting
from tenonnx.op.op import Op
from tenonnx.op.rules import find_rule

if TYPE_CHECKING:
    import numpy as np


class Concrete(Value):
    """A value with contents of any type: array, list (sequence), dict (map), or None for an empty optional."""

    __slots__ = ("contents",)

    def __init__(self, contents: Any, type: Type | None) -> None:
        super().__init__("", type)
        self.contents = contents


class GraphFunction:
    """A subgraph as numpy rules receive it: a function from contents to a tuple of contents; ``graph`` has types."""

    __slots__ = ("graph", "run")

    def __init__(self, graph: Graph, run: Callable[..., tuple[Any, ...]]) -> None:
        self.graph, self.run = graph, run

    def __call__(self, *contents: Any) -> tuple[Any, ...]:
        return self.run(*contents)


class Evaluator:
    """Interpreter that computes every call at once; for ``body_of`` it uses the body instead of the numpy rule.

    ``before_call`` is called with the op, inputs and attributes of each call, and may raise.
    """

    def __init__(self, body_of: Op | None = None, before_call: Callable[..., None] | None = None) -> None:
        self.body_of, self.before_call = body_of, before_call

    def call(
        self, op: Op, inputs: Sequence[Value | None], attributes: Mapping[str, Any], outputs: int | None = None
    ) -> tuple[Value | None, ...]:
        limits.check_time()
        rule = None if op is self.body_of else find_rule(op, "numpy")
        padded = pad(op, list(inputs))
        if rule is None and op.primitive:
            raise UnsupportedOp(f"{op.title} is a primitive without a numpy rule")
        import numpy as np

        try:
            if self.before_call is not None:
                self.before_call(op, padded, attributes)
            if rule is None:
                with interpreting(self):
                    return invoke(op, op.function, padded, attributes, outputs)
            arrays = [None if v is None else self.contents(v) for v in padded]
            functions = {n: self.function(a) if isinstance(a, Graph) else a for n, a in attributes.items()}
            with np.errstate(all="ignore"):
                results = invoke(op, rule, arrays, functions, outputs)
        except UNFORESEEN as error:
            raise cannot_compute(op.title, padded, attributes, error) from error
        return tuple(None if r is None else self.wrap(r) for r in results)

    def constant(self, array: np.ndarray[Any, Any], dtype: DType, role: Role | None = None) -> Value:
        return constant_value(array, dtype, None, "")

    def wrap(self, contents: Any) -> Value:
        """Contents as a concrete value."""
        import numpy as np

        if isinstance(contents, np.ndarray | np.generic):
            array = np.asarray(contents)
            return constant_value(array, DType.of(array.dtype), None, "")
        return Concrete(contents, type_of(contents))

    def contents(self, value: Value) -> Any:
        if isinstance(value, Concrete):
            return value.contents
        if value.data is None:
            raise TypeMismatch(f'the contents of "{value.name}" are not known here')
        return value.data.array()

    def function(self, graph: Graph, captured: Sequence[Any] = ()) -> GraphFunction:
        """A graph as a function from contents of its inputs to contents of its outputs, with the given captures."""
        return GraphFunction(graph, lambda *inputs: evaluate_graph(graph, inputs, captured, self))


def evaluate_graph(
    graph: Graph, feeds: Sequence[Any], captured: Sequence[Any] = (), evaluator: Evaluator | None = None
) -> tuple[Any, ...]:
    """The outputs of ``graph`` for contents of ``all_inputs`` and captures, node by node without a plan."""
    limits.check_time()
    run = Evaluator() if evaluator is None else evaluator
    known: dict[Value, Value] = {}
    for value, array in zip((*graph.all_inputs, *graph.captures), (*feeds, *captured), strict=True):
        known[value] = run.wrap(array)
    for node in graph.nodes:
        inputs, attributes = bind(node)
        values = [None if v is None else known.get(v, v) for v in inputs]
        for name, attribute in attributes.items():
            if isinstance(attribute, Graph):
                outer = [run.contents(known.get(v, v)) for v in node.captures]
                attributes[name] = run.function(attribute, outer)
        results = run.call(known_op(node), values, attributes, len(node.outputs))
        for output, result in zip(node.outputs, results, strict=False):
            if output is not None:
                known[output] = run.wrap(None) if result is None else result
    return tuple(run.contents(known.get(v, v)) for v in graph.outputs)


def type_of(contents: Any) -> Type | None:
    """The type of contents: an array, a list (sequence), a dict (map) or None (an optional without an element)."""
    import numpy as np

    if isinstance(contents, np.ndarray | np.generic):
        return ArrayConstant(np.asarray(contents)).type
    if isinstance(contents, list):
        return SequenceType(_common([type_of(c) for c in contents]))
    if isinstance(contents, dict):
        key = DType.string if any(isinstance(k, str) for k in contents) else DType.int64
        return MapType(key, _common([type_of(np.asarray(v)) for v in contents.values()]))
    return OptionalType(None) if contents is None else None


def _common(types: Sequence[Type | None]) -> Type | None:
    if not types:
        return None
    first = types[0]
    if isinstance(first, TensorType) and any(t != first for t in types):
        return TensorType(first.dtype)
    return first
