"""The rewriter shared by all transforms: copies a graph and keeps or replaces each call."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any

from tenonnx.errors import InvalidCall, InvalidModel, TenonnxError
from tenonnx.graph.containers import Operator
from tenonnx.graph.definitions import defined_by, definitions, operators
from tenonnx.graph.graph import Graph, Node, Value
from tenonnx.limits import count_call, expanding, work
from tenonnx.op.binding import bind, foreseeing, invoke, known_op, pad
from tenonnx.op.build import Builder, align_captures, captured_by
from tenonnx.op.call import interpreting
from tenonnx.op.graph_inference import declared_types, give, infer, infer_outputs, narrowed, share_captured
from tenonnx.op.infer import infer_call
from tenonnx.op.inline import reopened
from tenonnx.op.known_values import Known
from tenonnx.op.op import Op
from tenonnx.op.rules import find_rule
from tenonnx.registry.registry import Registry

#: Number of bodies that each node may expand to before expansions count towards the limit of nodes.
ALLOWANCE = 64


class Call:
    """One call of an op by its newest signature: of a source node (``node``), or in a body (None).

    ``inputs`` are values of the new graph.
    """

    __slots__ = ("_known", "attributes", "inputs", "node", "op", "outputs")

    def __init__(
        self,
        op: Op,
        inputs: Sequence[Value | None],
        attributes: Mapping[str, Any],
        outputs: int | None,
        node: Node | None = None,
        known: Sequence[Known | None] | None = None,
    ) -> None:
        self.op = op
        self.inputs = tuple(inputs)
        self.attributes = attributes
        self.outputs = outputs
        self.node = node
        self._known = known

    @property
    def known(self) -> Sequence[Known | None]:
        """Known values of the outputs. Raises ``TypeMismatch`` if the op does not accept the call."""
        if self._known is None:
            self._known = infer_call(self.op, self.inputs, self.attributes, self.outputs)
        return self._known


#: Decides about a call: None keeps it, a sequence of results replaces it.
Decision = Callable[["Rewriter", Call], Sequence[Value | None] | None]


class Rewriter(Builder):
    """Copies ``source`` to a new graph, calling ``decide`` for every call.

    Calls in expanded bodies are decided in the same way. Kept nodes are copied as they are; inputs, outputs and
    variables keep their names; new names begin with the name of the replaced node.

    Types are inferred on the values of the new graph; the source is only read. A node with contradictory types keeps
    its declared ones; when ``strict``, it raises ``InvalidModel``.
    """

    def __init__(self, source: Graph, decide: Decision, *, strict: bool = False, outer: Rewriter | None = None) -> None:
        super().__init__(_blank(source, None if outer is None else outer.graph), fold=True, outer=outer)
        if outer is None:
            self.graph.reserve(source.root.names())
        self.source = source
        self.decide = decide
        self.strict = strict
        #: Whether the types in the source are complete, as for a subgraph, which the owner's inference has covered.
        self.inferred = outer is not None
        self.registry: Registry | None = source.root.registry if outer is None else outer.registry
        self.mapping: dict[Value, Value] = {}
        self.node: Node | None = None

    def run(self) -> Graph:
        """The rewritten graph; the source is unchanged."""
        for group, copies in (
            (self.source.all_inputs, self.graph.all_inputs),
            (self.source.captures, self.graph.captures),
            (self.source.variables, self.graph.variables),
        ):
            copies += map(self.copy, group)
        with defined_by(self.registry), work(ALLOWANCE * len(self.source.nodes)), interpreting(self):
            for node in self.source.nodes:
                self.visit(node)
            self.node = None
            outputs = {value: self._output(value) for value in dict.fromkeys(self.source.outputs)}
            self.graph.outputs = [outputs[value] for value in self.source.outputs]
        return self.graph

    @cached_property
    def readers(self) -> Mapping[Value, Sequence[Node]]:
        """The consumers of each value in the source."""
        return self.source.uses()

    # ----- nodes of the source ------------------------------------------------------------------------------------

    def copy(self, value: Value) -> Value:
        """The value of the new graph for ``value`` of the source."""
        result = self.mapping.get(value)
        if result is None:
            result = self.mapping[value] = _copied(value, self.graph)
        return result

    def visit(self, node: Node) -> None:
        """Add a node of the source or its replacement."""
        self.node, self.prefix = node, node.label or node.op_type
        copied = self._translated(node)
        if self.stays_unchanged(copied):
            self.keep(copied)
            return
        call = self._call_of(node, copied) if isinstance(node.op, Op) else None
        start = len(self.nodes)
        results = self.replacement(copied, call)
        if results is None:
            self.keep(copied)
        else:
            self._replace(node, results, start)

    def stays_unchanged(self, node: Node) -> bool:
        """Whether a translated node is certain to be kept, with its output types known."""
        return False

    def replacement(self, node: Node, call: Call | None) -> Sequence[Value | None] | None:
        """Replacement of a translated node, before it is added; None keeps it.

        ``call`` is None if the op is unknown.
        """
        return None if call is None else self._decided(call)

    def _translated(self, node: Node) -> Node:
        """``node`` with inputs of the new graph. Its subgraphs are copied, since inference modifies them."""
        copied = _copied_node(node, self.copy, self.graph if self.outer is None else None)
        for subgraph in copied.subgraphs:
            share_captured(copied.captures, subgraph)
        return copied

    def _call_of(self, node: Node, copied: Node) -> Call:
        """The call of a node; known facts of its outputs are stored in the copy."""
        op = known_op(node)
        bound, attributes = bind(copied)
        inputs = [v if v is None or v.graph is not None else self.intern_constant(v) for v in bound]
        known: Sequence[Known | None]
        if self.inferred:
            known = [None if v is None else Known(v.type, v.symbolic_contents, v.data) for v in copied.outputs]
            return Call(op, inputs, attributes, len(node.outputs), node, known)
        declared = declared_types(self.source, node)
        try:
            known = infer_outputs(copied, inputs, attributes, declared)
        except InvalidModel:
            if self.strict:
                raise
            known = declared
        give(copied, known)
        return Call(op, inputs, attributes, len(node.outputs), node, known)

    def keep(self, node: Node) -> None:
        """Add a translated node with rewritten subgraphs."""
        if node.subgraphs:
            origin = node.origin  # the message of the node; subgraphs have their own
            node._replace_fields(attributes={name: self._rewritten(name, a) for name, a in node.attributes.items()})
            node._replace_fields(captures=(*node.captures, *align_captures(node.subgraphs, self)))
            node.origin = origin
        self.append(node)

    def _rewritten(self, name: str, attribute: Any) -> Any:
        if isinstance(attribute, Graph):
            return self.inner(attribute, name).run()
        return [self._rewritten(name, a) for a in attribute] if isinstance(attribute, list) else attribute

    def inner(self, subgraph: Graph, attribute: str) -> Rewriter:
        """The rewriter of a subgraph, stored in ``attribute`` of the current node."""
        return type(self)(subgraph, self.decide, outer=self)

    def _replace(self, node: Node, results: Sequence[Value | None], start: int) -> None:
        """Replace the outputs of ``node`` by ``results``; values created since ``start`` take over their names."""
        fresh = {v for new_node in self.nodes[start:] for v in new_node.outputs if v is not None}
        for output, result in zip(node.outputs, results, strict=False):
            if output is None:
                continue
            if result is None:
                if output in self.source.outputs or self.readers.get(output):
                    raise InvalidCall(f'{node.title}: nothing replaces output "{output.name}"')
                continue
            if result in fresh:
                fresh.discard(result)
                result._replace_fields(name=output.name, type=narrowed(result.type, self.copy(output).type))
                if result.producer is not None and len(self.nodes) == start + 1:
                    result.producer._replace_fields(name=node.name)
            self.mapping[output] = result

    def _output(self, value: Value) -> Value:
        result = self.copy(value)
        renamed = result.name != value.name
        if renamed and result.is_constant:  # equal constants are shared, but each output needs its own name
            return Value(value.name, result.type, data=result.data, graph=self.graph)
        if renamed:
            self.prefix = result.name
            copy: Value = operators().identity(result)
            copy._replace_fields(name=value.name)
            return copy
        return result

    # ----- calls --------------------------------------------------------------------------------------------------

    def call(
        self, op: Op, inputs: Sequence[Value | None], attributes: Mapping[str, Any], outputs: int | None = None
    ) -> tuple[Value | None, ...]:
        count_call(op.title)
        values = [self.adopt(v) for v in inputs]
        call = Call(op, pad(op, values), attributes, outputs)
        if op.pure and all(v is None or v.is_constant for v in values):
            folded = self.static_results(call.known, values)
            if folded is not None:
                return folded
        results = self._decided(call)
        if results is not None:
            return tuple(results)
        folded = self.static_results(call.known, values) if op.pure else None
        return self.add(op, values, attributes, call.known) if folded is None else folded

    def _decided(self, call: Call) -> Sequence[Value | None] | None:
        definitions().load(call.op.domain)  # packages of the domain may add rules for the op
        try:
            return self.decide(self, call)
        except TenonnxError as error:
            if self.node is not None and "node " not in error.what:
                error.what = f"{self.node.title}: {error.what}"
            raise

    def ask(self, consumer: str, call: Call, **more: Any) -> tuple[Any, ...] | None:
        """Result of the op's rule for ``consumer``, which replaces the call; None without a rule, or if it declines.

        Raises ``TypeMismatch`` if the rule fails.
        """
        rule = find_rule(call.op, consumer)
        if rule is None:
            return None
        with foreseeing(call.op.title, call.inputs, call.attributes):
            result = rule(*call.inputs, **call.attributes, **more)
        return result if result is None or isinstance(result, tuple) else (result,)

    def expand(self, call: Call) -> tuple[Value | None, ...]:
        """The results of the op's body. Raises ``LimitExceeded`` if expansions exceed the limit."""
        with expanding(call.op.title), foreseeing(call.op.title, call.inputs, call.attributes), interpreting(self):
            attributes = {name: self.reopened(a, call) for name, a in call.attributes.items()}
            if call.op.signature.reads_graph:
                attributes["_graph"] = self._typed_source
            return invoke(call.op, call.op.function, call.inputs, attributes, call.outputs)

    @cached_property
    def _typed_source(self) -> Graph:
        typed = copy_graph(self.source)
        infer(typed, strict=False)
        return typed

    def reopened(self, attribute: Any, call: Call) -> Any:
        """A subgraph of the call retraced in this graph, for use in a body."""
        if not isinstance(attribute, Graph):
            return attribute
        if call.node is None:
            return reopened(attribute, captured_by(attribute), {})
        return reopened(attribute, [self.copy(v) for v in call.node.captures], {})

    def inside(self, function: Callable[..., Any], *arguments: Any, **keywords: Any) -> Any:
        """Call a function with this rewriter as the active interpreter."""
        with interpreting(self):
            return function(*arguments, **keywords)

    def nested(self, graph: Graph) -> Builder:
        inner = self.inner(Graph(graph.name), graph.name)
        inner.graph, inner.source = graph, self.source
        inner.prefix, inner.node = self.prefix, self.node
        return inner


def body_nodes(op: Operator) -> list[Node]:
    """Nodes in the bodies of a local function and its callees; other ops have no graph as body."""
    bodies: dict[Operator, list[Node]] = {}
    found = [op]
    for each in found:  # the list grows during iteration
        if each not in bodies and (body := getattr(each, "body", None)) is not None:
            bodies[each] = list(body.walk())
            found += [node.op for node in bodies[each]]
    return [node for nodes in bodies.values() for node in nodes]


# ----- copies ---------------------------------------------------------------------------------------------------------


def copy_graph(graph: Graph, parent: Graph | None = None) -> Graph:
    """A copy that shares only immutable contents."""
    copy = _blank(graph, parent)
    copies: dict[Value, Value] = {}

    def of(value: Value) -> Value:
        result = copies.get(value)
        if result is None:
            result = copies[value] = _copied(value, copy)
        return result

    copy.all_inputs, copy.captures = list(map(of, graph.all_inputs)), list(map(of, graph.captures))
    copy.variables = list(map(of, graph.variables))
    for node in graph.nodes:
        copy.append(_copied_node(node, of, copy))
    copy.outputs = list(map(of, graph.outputs))
    return copy


def _blank(graph: Graph, parent: Graph | None) -> Graph:
    """A copy of ``graph`` without values and nodes."""
    blank = Graph(graph.name, opsets=graph.opsets, ir_version=graph.ir_version, parent=parent)
    blank.registry, blank.origin, blank.doc = graph.registry, graph.origin, graph.doc
    blank.metadata, blank.functions = dict(graph.metadata), dict(graph.functions)
    blank.value_types, blank.training_state = graph.value_types, graph.training_state
    blank.retyped = graph.retyped
    return blank


def _copied(value: Value, graph: Graph) -> Value:
    copy = Value(value.name, value.type, data=value.data, graph=graph)
    copy.symbolic_contents, copy.role = value.symbolic_contents, value.role
    return copy


def _copied_node(node: Node, of: Callable[[Value], Value], graph: Graph | None) -> Node:
    """A copy of ``node`` on values mapped by ``of``, with subgraphs copied to ``graph``, or shared if that is None."""
    outputs = [None if v is None else of(v) for v in node.outputs]
    inputs = [None if v is None else of(v) for v in node.inputs]
    attributes: Mapping[str, Any] = node.attributes
    if graph is not None and node.subgraphs:
        attributes = {name: _copied_attribute(a, graph) for name, a in attributes.items()}
    captures = tuple(map(of, node.captures)) if node.captures else ()
    return Node(
        node.op, node.version, inputs, attributes, outputs, name=node.name, captures=captures, origin=node.origin
    )


def _copied_attribute(attribute: Any, parent: Graph) -> Any:
    if isinstance(attribute, Graph):
        return copy_graph(attribute, parent)
    return [_copied_attribute(a, parent) for a in attribute] if isinstance(attribute, list) else attribute
