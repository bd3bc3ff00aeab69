"""The walk that all transforms share: copy a graph and decide, call by call, what becomes of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tenonnx.errors import InvalidCall, TenonnxError
from tenonnx.graph.definitions import defined_by, definitions
from tenonnx.graph.graph import Graph
from tenonnx.graph.types import TensorType, Type
from tenonnx.graph.values import Node, Value, operator
from tenonnx.op.binding import UNFORESEEN, bind, invoke, pad, refused
from tenonnx.op.build import Builder, align_captures
from tenonnx.op.call import interpreting
from tenonnx.op.infer import infer_call
from tenonnx.op.inline import reopened
from tenonnx.op.op import Op
from tenonnx.registry.registry import Registry

#: Bodies nested deeper than this expand to themselves.
MAXIMUM_DEPTH = 64


@dataclass(frozen=True, slots=True)
class Call:
    """One application of an op by today's spelling: from a node of the source (``node``), or from a body (None)."""

    op: Op
    inputs: tuple[Value | None, ...]
    attributes: Mapping[str, Any]
    outputs: int | None
    node: Node | None = None


#: Decides what becomes of a call: None keeps it, otherwise the results that replace it.
Decision = Callable[["Rewriter", Call], Sequence[Value | None] | None]


class Rewriter(Builder):
    """Copies ``source`` into a new graph, asking ``decide`` about every call.

    What a body calls while it is expanded is decided in the same way. Kept nodes are copied as they were written;
    inputs, outputs and variables keep their names; new names begin with the name of the node that they come from.
    """

    def __init__(self, source: Graph, decide: Decision, *, parent: Rewriter | None = None) -> None:
        target = Graph(source.name, opsets=source.opsets, ir_version=source.ir_version)
        super().__init__(target, fold=True)
        self.source = source
        self.decide = decide
        self.outer = parent
        self.registry: Registry | None = source.root.registry if parent is None else parent.registry
        self.mapping: dict[Value, Value] = {}
        self.depth = 0
        self.journal: list[tuple[str, str, int | None]] = [] if parent is None else parent.journal
        self.node: Node | None = None
        if parent is None:
            target._names = dict(source.root.names())
        else:
            target.parent = parent.graph
        target.registry = source.registry
        target.metadata = dict(source.metadata)
        target.functions = dict(source.functions)
        target.value_types, target.training_state = source.value_types, source.training_state
        target.doc, target.origin = source.doc, source.origin

    def run(self) -> Graph:
        """The rewritten graph; the source is left as it was."""
        for group, copies in (
            (self.source.all_inputs, self.graph.all_inputs),
            (self.source.captures, self.graph.captures),
            (self.source.variables, self.graph.variables),
        ):
            for value in group:
                copies.append(self.copy(value))
        with defined_by(self.registry), interpreting(self):
            for node in self.source.nodes:
                self.visit(node)
            self.node = None
            self.graph.outputs = [self._output(value) for value in self.source.outputs]
        return self.graph

    # ----- nodes of the source ------------------------------------------------------------------------------------

    def copy(self, value: Value) -> Value:
        """The value of the new graph that stands for ``value`` of the source."""
        found = self.mapping.get(value)
        if found is None:
            found = Value(value.name, value.type, data=value.data, graph=self.graph)
            found.elements, found.origin = value.elements, value.origin
            self.mapping[value] = found
        return found

    def visit(self, node: Node) -> None:
        self.node = node
        self.prefix = node.name or next((v.name for v in node.outputs if v is not None), node.op_type)
        if not isinstance(node.op, Op):
            self.keep(node)
            return
        bound, attributes = bind(node)
        inputs = tuple(None if v is None else self._bound(v) for v in bound)
        start = len(self.graph.nodes)
        results = self._decided(Call(node.op, inputs, attributes, len(node.outputs), node))
        if results is None:
            self.keep(node)
        else:
            self._replace(node, results, start)

    def _bound(self, value: Value) -> Value:
        if value.graph is None:
            return self.intern_constant(value)
        return self.copy(value)

    def keep(self, node: Node, *, version: int | None = None, attributes: Mapping[str, Any] | None = None) -> Node:
        """Copy ``node`` as it is written, its subgraphs rewritten."""
        inputs = [None if v is None else self.copy(v) for v in node.inputs]
        outputs = [None if v is None else self.copy(v) for v in node.outputs]
        captures = [self.copy(v) for v in node.captures]
        written = node.attributes if attributes is None else attributes
        origin = node.origin if attributes is None else None
        if node.subgraphs:
            written = {name: self._attribute(a, captures) for name, a in written.items()}
            listed = (a if isinstance(a, list) else [a] for a in written.values())
            captures += align_captures([g for graphs in listed for g in graphs if isinstance(g, Graph)], self)
        kept = Node(
            node.op, node.version if version is None else version, inputs, written, outputs,
            name=node.name, captures=captures, origin=origin,
        )  # fmt: skip
        self.graph.append(kept)
        return kept

    def _attribute(self, attribute: Any, captures: Sequence[Value]) -> Any:
        if isinstance(attribute, Graph):
            return type(self)(attribute, self.decide, parent=self).run()
        if isinstance(attribute, list):
            return [self._attribute(a, captures) for a in attribute]
        return attribute

    def _replace(self, node: Node, results: Sequence[Value | None], start: int) -> None:
        """Let ``results`` stand for the outputs of ``node``; new values take over their names."""
        fresh = {v for made in self.graph.nodes[start:] for v in made.outputs if v is not None}
        for output, result in zip(node.outputs, results, strict=False):
            if output is None:
                continue
            if result is None:
                raise InvalidCall(f'{node.title}: nothing replaces output "{output.name}"')
            if result in fresh:
                fresh.discard(result)
                result.name = output.name
                result.type = _refined(result.type, output.type)
                if result.producer is not None and len(self.graph.nodes) == start + 1:
                    result.producer.name = node.name
            self.mapping[output] = result

    def _output(self, value: Value) -> Value:
        found = self.copy(value)
        taken = any(found is other for other in self.graph.outputs)
        renamed = found.name != value.name
        if (taken or renamed) and found.is_constant:  # equal ones are one value, and each output has a name of its own
            return Value(value.name, found.type, data=found.data, graph=self.graph)
        if taken or renamed:
            self.prefix = found.name
            copy: Value = operator("identity", found)
            copy.name = value.name
            return copy
        return found

    def name(self, wanted: str) -> str:
        names = self.graph.names()
        before = names.get(wanted)
        name = super().name(wanted)
        self.journal.append((wanted, name, before))
        return name

    def forget_names(self, length: int) -> None:
        """Give back the names taken since the journal had ``length`` entries."""
        names = self.graph.names()
        while len(self.journal) > length:
            wanted, name, before = self.journal.pop()
            names.pop(name, None)
            if before is not None:
                names[wanted] = before
            else:
                names.pop(wanted, None)
        self._constants = {key: value for key, value in self._constants.items() if value.name in names}

    # ----- calls --------------------------------------------------------------------------------------------------

    def call(
        self, op: Op, inputs: Sequence[Value | None], attributes: Mapping[str, Any], outputs: int | None = None
    ) -> tuple[Value | None, ...]:
        values = tuple(self.adopt(v) for v in inputs)
        if op.pure and all(v is None or v.is_constant for v in values):
            folded = self._folded(op, values, attributes, outputs)
            if folded is not None:
                return folded
        results = self._decided(Call(op, tuple(pad(op, list(values))), attributes, outputs))
        if results is None:
            return super().call(op, values, attributes, outputs)
        return tuple(results)

    def _folded(
        self, op: Op, inputs: Sequence[Value | None], attributes: Mapping[str, Any], outputs: int | None
    ) -> tuple[Value | None, ...] | None:
        return self.static_results(infer_call(op, inputs, attributes, outputs))

    def _decided(self, call: Call) -> Sequence[Value | None] | None:
        definitions().load(call.op.domain)  # any package of it may have rules on the op
        try:
            return self.decide(self, call)
        except TenonnxError as error:
            if self.node is not None and "node " not in error.what:
                error.what = f"{self.node.title}: {error.what}"
            raise

    def expand(self, call: Call) -> tuple[Value | None, ...]:
        """The results of the op's body. Raises ``InvalidCall`` for a body that calls itself."""
        self.depth += 1
        if self.depth > MAXIMUM_DEPTH:
            raise InvalidCall(f"the body of {call.op.title} expands to itself")
        try:
            with interpreting(self):
                attributes = {name: self._reopened(a, call) for name, a in call.attributes.items()}
                if call.op.signature.reads_graph:
                    attributes["_graph"] = self.source
                return invoke(call.op, call.op.function, call.inputs, attributes, call.outputs)
        except UNFORESEEN as error:
            raise refused(call.op.title, call.inputs, call.attributes, error) from error
        finally:
            self.depth -= 1

    def _reopened(self, attribute: Any, call: Call) -> Any:
        """A subgraph of the call as one of this graph, for a body to use."""
        if not isinstance(attribute, Graph):
            return attribute
        captured = call.node.captures if call.node is not None else tuple(attribute.pending or ())
        outer = [self.copy(v) if call.node is not None else v for v in captured]
        return reopened(attribute, outer, {})

    def inside(self, function: Callable[..., Any], *arguments: Any, **keywords: Any) -> Any:
        """Call a function with this rewriter taking its calls."""
        with interpreting(self):
            return function(*arguments, **keywords)

    def nested(self, graph: Graph) -> Builder:
        made = type(self)(Graph(graph.name), self.decide, parent=self)
        made.graph = graph
        made.prefix, made.node, made.depth = self.prefix, self.node, self.depth
        return made


def _refined(found: Type | None, known: Type | None) -> Type | None:
    """The type of a result with what was known of the value that it stands for."""
    if found is None:
        return known
    if not isinstance(found, TensorType) or not isinstance(known, TensorType) or found.dtype is not known.dtype:
        return found
    if found.shape is None or known.shape is None:
        return found if known.shape is None else known
    if len(found.shape) != len(known.shape):
        return found
    return found.with_shape(tuple(a if a is not None else b for a, b in zip(found.shape, known.shape, strict=True)))


def copy_graph(graph: Graph) -> Graph:
    """A copy that shares contents and nothing that can be edited."""
    return Rewriter(graph, lambda rewriter, call: None).run()
