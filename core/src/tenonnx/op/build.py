"""Tracing: calls become nodes of a graph."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from tenonnx.errors import InvalidCall, TypeMismatch
from tenonnx.graph.definitions import defined_by, operators
from tenonnx.graph.dtypes import DType
from tenonnx.graph.graph import Graph, Node, Value
from tenonnx.graph.names import unique_name
from tenonnx.graph.training import Role
from tenonnx.graph.types import Type
from tenonnx.op.call import constant_value, current, interpreting, is_trainable, role_of_result
from tenonnx.op.graph_inference import ensure_inferred
from tenonnx.op.infer import Abstract, infer_call
from tenonnx.op.known_values import Known
from tenonnx.op.op import Op
from tenonnx.op.versioned_signature import same_attribute

if TYPE_CHECKING:
    import numpy as np


class Draft:
    """Uncommitted nodes, names and constants of an ``attempt``, on top of those built before it."""

    __slots__ = ("captured", "constants", "names", "nodes")

    def __init__(
        self,
        names: MutableMapping[str, int],
        constants: MutableMapping[Any, Value],
        captured: MutableMapping[Value, Value],
    ) -> None:
        self.nodes: list[Node] = []
        self.names = ChainMap({}, names)
        self.constants = ChainMap({}, constants)
        self.captured = ChainMap({}, captured)


class Builder:
    """Interpreter that adds a node to ``graph`` for every call and infers its output types.

    ``prefix`` is the prefix of new value names. With ``fold``, calls with static results add no node. ``outer`` is the
    builder of the enclosing graph, if any; both share one set of names.
    """

    def __init__(self, graph: Graph, *, prefix: str = "", fold: bool = False, outer: Builder | None = None) -> None:
        self.graph = graph
        self.prefix = prefix
        self.fold = fold
        self.outer = outer
        self._constants: MutableMapping[Any, Value] = {}
        self._captured: MutableMapping[Value, Value] = {v.outer: v for v in graph.captures if v.outer is not None}
        self._draft: Draft | None = None

    def call(
        self, op: Op, inputs: Sequence[Value | None], attributes: Mapping[str, Any], outputs: int | None = None
    ) -> tuple[Value | None, ...]:
        values = [self.adopt(v) for v in inputs]
        known = infer_call(op, values, attributes, outputs)
        static = self.static_results(known, values) if self.fold and op.pure else None
        return self.add(op, values, attributes, known) if static is None else static

    def static_results(self, known: Sequence[Known | None], inputs: Sequence[Value | None]) -> tuple[Any, ...] | None:
        """The results of a call as constants, or None unless the contents of all are known."""
        if not all(k is None or k.data is not None for k in known):
            return None
        arrays = [None if k is None else k.data for k in known]
        return tuple(None if data is None else self.result(data.array(), data.type.dtype, inputs) for data in arrays)

    def result(self, array: np.ndarray[Any, Any], dtype: DType, inputs: Sequence[Value | None]) -> Value:
        """A result computed from constants only, with the role of a parameter among them, if any."""
        return self.constant(array, dtype, role_of_result(inputs) if dtype.is_float and array.ndim else None)

    def add(
        self,
        op: Op,
        inputs: Sequence[Value | None],
        attributes: Mapping[str, Any],
        known: Sequence[Known | None],
        *,
        version: int | None = None,
        written: Mapping[str, Any] | None = None,
    ) -> tuple[Value | None, ...]:
        """Append a node; ``attributes`` are complete, ``written`` are those that the node stores, by default all."""
        if written is None:
            defaults = op.signature.attributes
            written = {n: v for n, v in attributes.items() if v is not None and not same_attribute(v, defaults[n])}
        wanted = self._within(op.name)
        outputs = [None if entry is None else entry.value(self.name(wanted)) for entry in known]
        trimmed = list(inputs)
        while trimmed and trimmed[-1] is None:
            trimmed.pop()
        subgraphs = [g for g in written.values() if isinstance(g, Graph)]
        captures = align_captures(subgraphs, self) if subgraphs else ()
        name = next((v.name for v in outputs if v is not None), wanted)
        node = Node(
            op, op.version if version is None else version, trimmed, written, outputs, name=name, captures=captures
        )
        self.append(node)
        return tuple(outputs)

    def replayed(self, node: Node) -> Sequence[Value | None] | None:
        """Replacement for a node of an inlined graph with mapped inputs; None replays the node as a call of its op."""
        return None

    def append(self, node: Node) -> None:
        """Append a node with its outputs, which no graph owns yet."""
        for value in node.outputs:
            if value is not None:
                value.producer, value.graph = node, self.graph
        self.nodes.append(node)

    @property
    def nodes(self) -> list[Node]:
        """The nodes added so far: those of the graph, or of the current attempt."""
        return self.graph.nodes if self._draft is None else self._draft.nodes

    @property
    def names(self) -> MutableMapping[str, int]:
        if self._draft is not None:
            return self._draft.names
        return self.graph.names() if self.outer is None else self.outer.names

    def name(self, wanted: str) -> str:
        return unique_name(self.names, wanted)

    def _within(self, name: str) -> str:
        return f"{self.prefix}/{name}" if self.prefix else name

    @contextmanager
    def attempt(self) -> Iterator[None]:
        """Commit what the block builds when it ends; discard it after an error."""
        standing, constants, captured = self._draft, self._constants, self._captured
        self._draft = draft = Draft(self.names, constants, captured)
        self._constants, self._captured = draft.constants, draft.captured
        try:
            yield
        finally:
            self._draft, self._constants, self._captured = standing, constants, captured
        self.nodes.extend(draft.nodes)
        self.names.update(draft.names.maps[0])
        constants.update(draft.constants.maps[0])
        for outer, stand_in in draft.captured.maps[0].items():
            self._stand_in(outer, stand_in)

    # ----- values of other graphs ---------------------------------------------------------------------------------

    def adopt(self, value: Value | None) -> Value | None:
        """``value`` as this graph can read it: loose constants are named, outer values captured."""
        if value is None or value.graph is self.graph:
            return value
        foreign = value.graph is None or value.graph.root is not self.graph.root
        if foreign and value.is_constant:
            return self.intern_constant(value)
        if foreign:
            what = f'value "{value.name}" is not in graph "{self.graph.name}"'
            raise TypeMismatch(what, given="a value of another graph", do="make it an input of this graph")
        return self.capture(value)

    def capture(self, outer: Value) -> Value:
        """The value that represents a value of an enclosing graph."""
        result = self._captured.get(outer)
        if result is None:
            result = Value(outer.name, outer.type, data=outer.data, graph=self.graph)
            result.symbolic_contents, result.outer = outer.symbolic_contents, outer
            self._stand_in(outer, result)
        return result

    def _stand_in(self, outer: Value, stand_in: Value) -> None:
        self._captured[outer] = stand_in
        if self._draft is None:
            self.graph.captures.append(stand_in)

    def nested(self, graph: Graph) -> Builder:
        """The builder of a subgraph of this one's graph."""
        return Builder(graph, prefix=self.prefix, fold=self.fold, outer=self)

    def as_output(self, value: Value) -> Value:
        """``value`` as the output of a node, as subgraph outputs must be; adds an Identity if necessary."""
        taken = any(value is other for other in self.graph.outputs)
        if value.producer is None or value.graph is not self.graph or taken:
            with interpreting(Builder(self.graph, prefix=self.prefix, outer=self)):
                return operators().identity(value)  # type: ignore[no-any-return]
        return value

    # ----- constants ----------------------------------------------------------------------------------------------

    def constant(self, array: np.ndarray[Any, Any], dtype: DType, role: Role | None = None) -> Value:
        """A loose constant. Small equal ones are shared, except those with a role, since training may change them."""
        small = array.nbytes <= 1024 and dtype is not DType.string and role is None
        key = (dtype, array.shape, array.tobytes()) if small else object()
        if key not in self._constants:
            name = self.name(self._within("constant"))
            self._constants[key] = value = constant_value(array, dtype, self.graph, name)
            value.role = role
        return self._constants[key]

    def intern_constant(self, value: Value) -> Value:
        assert value.data is not None
        if value.data.nbytes <= 1024 and not is_trainable(value):
            return self.constant(value.data.array(), value.data.type.dtype)
        if value not in self._constants:
            name = self.name(self._within("constant"))
            self._constants[value] = copied = Value(name, value.type, data=value.data, graph=self.graph)
            copied.role = value.role
        return self._constants[value]


class Scratch(Builder, Abstract):
    """Builds subgraphs during type inference: values belong to other graphs and have no unique names."""

    def __init__(self, graph: Graph, guessing: bool) -> None:
        super().__init__(graph, fold=True)
        self.guessing = guessing

    def name(self, wanted: str) -> str:
        return wanted

    def adopt(self, value: Value | None) -> Value | None:
        return value

    def nested(self, graph: Graph) -> Builder:
        return Scratch(graph, self.guessing)

    def as_output(self, value: Value) -> Value:
        return value


@contextmanager
def building(graph: Graph, prefix: str = "") -> Iterator[None]:
    """Add a node to ``graph`` for every op called in the block; values without a type are inferred first.

    An error removes everything that the block added: nodes, inputs, variables, outputs and names.
    """
    ensure_inferred(graph)
    taken, named = dict(graph.names()), [(value, value.name) for value in graph.values()]
    lists = graph.nodes, graph.all_inputs, graph.captures, graph.variables, graph.outputs
    parts = [(part, len(part)) for part in lists]
    with defined_by(graph.root.registry), interpreting(Builder(graph, prefix=prefix)):
        try:
            yield
        except BaseException:
            for part, count in parts:
                del part[count:]
            for value, name in named:
                value._replace_fields(name=name)
            names = graph.names()
            names.clear()
            names.update(taken)
            raise


def align_captures(subgraphs: Sequence[Graph], builder: Builder) -> tuple[Value, ...]:
    """Extend all subgraphs of one node to the same captures in the same order; returns the outer values."""
    outers = dict.fromkeys(v.outer for graph in subgraphs for v in graph.captures if v.outer is not None)
    for graph in subgraphs:
        inner = Builder(graph)
        captures = [value for value in graph.captures if value.outer is None]
        further = [inner.capture(outer) for outer in outers]
        graph.captures = [*captures, *further]
        for stand_in in further:
            stand_in.outer = None
    return tuple(value for outer in outers if (value := builder.adopt(outer)) is not None)


def captured_by(graph: Graph) -> list[Value]:
    """Captures of a finished graph, or the captured outer values of a graph under construction."""
    return [value if value.outer is None else value.outer for value in graph.captures]


def subgraph(
    function: Callable[..., Any], inputs: Sequence[tuple[str, Type | None]] = (), *, name: str = "body"
) -> Graph:
    """Trace ``function`` into a graph nested in the one under construction, for use as an attribute.

    ``inputs`` are pairs of a name and a type. Outer values used in the function are captured, or become constants if
    they are concrete. The function returns one value or a sequence of values.
    """
    outer = current()
    if isinstance(outer, Builder):
        graph = Graph(name, parent=outer.graph, opsets=outer.graph.opsets)
        inner = outer.nested(graph)
    else:
        graph = Graph(name)
        inner = Scratch(graph, outer.guessing) if isinstance(outer, Abstract) else Builder(graph, fold=True)
    if isinstance(inputs, Value) or not all(isinstance(each, tuple) for each in inputs):
        raise InvalidCall(f"the inputs of {name} are not pairs of a name and a type", given=repr(inputs)[:200])
    for wanted, kind in inputs:
        value = Value(inner.name(wanted), kind, graph=graph)
        graph.all_inputs.append(value)
    with interpreting(inner):
        results = function(*graph.all_inputs)
        for position, result in enumerate(results if isinstance(results, list | tuple) else [results]):
            output = inner.adopt(result) if isinstance(result, Value) else None
            if output is None:
                raise TypeMismatch(f"output {position} of {name} is not a value", given=repr(result)[:200])
            graph.outputs.append(inner.as_output(output))
    return graph
