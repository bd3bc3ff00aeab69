"""Retargeting: conversion of a graph to other opset versions and domains."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Collection, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from typing import Any, TypeVar

from tenonnx.errors import LimitExceeded, NotRepresentable, TenonnxError, TypeMismatch, UnsupportedOp
from tenonnx.graph.containers import Operator
from tenonnx.graph.definitions import definitions, in_registry_of_graph, operators
from tenonnx.graph.dtypes import DType
from tenonnx.graph.gc_paused import gc_paused
from tenonnx.graph.graph import Graph, Node, Value
from tenonnx.graph.types import TensorType
from tenonnx.op.binding import bind, foreseeing
from tenonnx.op.graph_inference import give
from tenonnx.op.infer import infer_call
from tenonnx.op.known_values import Known
from tenonnx.op.op import Op
from tenonnx.transforms.default_inputs import sparing_defaults
from tenonnx.transforms.legalize import LegalCall, Legalizer
from tenonnx.transforms.node_memo import TrackedConstant, kind_of, tracked, were_read
from tenonnx.transforms.promotion import QUANTIZED, Widened
from tenonnx.transforms.prune import drop_dead_nodes, needed_nodes
from tenonnx.transforms.report import Change, Retargeted, all_kept, interface_refusals, refusal
from tenonnx.transforms.rewrite import Call, Rewriter, body_nodes
from tenonnx.transforms.runtimes import Runtime, Ways
from tenonnx.transforms.target import Target, is_as_written, target_for

#: Lowerings of one op nested deeper than this are considered cyclic.
MAXIMUM_NESTING = 3

Item = TypeVar("Item")

#: The results that replace a call, or None if a way does not lead to the target.
_Results = Sequence[Value | None] | None


def retarget(
    graph: Graph,
    opset_version: int | Mapping[str, int] | None = None,
    domains: Collection[str] | None = None,
    target: str | Runtime | None = None,
) -> Graph:
    """Convert ``graph`` to another opset, to ops of ``domains`` only, and to the limits of ``target``.

    ``opset_version`` is a number for ``ai.onnx``, or a mapping from domains to numbers; ``target`` is a name, the path
    of a target file, or a ``tx.Target``.

    Each node is kept, adapted, lowered to an older op, or expanded by its body. Raises ``NotRepresentable`` naming
    every node that the target cannot express, with the reason.
    """
    return retarget_to(graph, target_for(graph, opset_version, domains, target)).graph


@in_registry_of_graph
@gc_paused()
def retarget_to(graph: Graph, target: Target, *, refuse: bool = True, spare_defaults: bool = True) -> Retargeted:
    """Convert ``graph`` to the ops of ``target``. With ``refuse`` False, unsupported nodes are kept and reported.

    If ``spare_defaults``, the defaults of inputs are not read if possible, see ``sparing_defaults``.
    """
    move = functools.partial(_retargeted, target=target)
    result = sparing_defaults(graph, move) if spare_defaults else move(graph)
    if refuse and result.refused:
        raise refusal(result.refused, target)
    return result


def _retargeted(graph: Graph, target: Target) -> Retargeted:
    context = RetargetState(Legalizer(target, graph))
    moved = Retargeting(graph, context).run()
    if any(c.action == "expanded" for c in context.changes) and needed_nodes(graph, graph.outputs) == graph.nodes:
        drop_dead_nodes(moved)  # one expansion may make the nodes of an earlier one dead
    _drop_unused_variables(moved, graph, context.widened.values())
    moved.opsets = dict(_used_opsets(moved, target, graph))
    moved.functions = {key: f for key, f in graph.functions.items() if f in context.functions}
    if moved.opsets != graph.opsets:
        moved.ir_version = None
    return Retargeted(moved, context.changes + interface_refusals(graph, target))


def _drop_unused_variables(moved: Graph, source: Graph, created: Collection[Value]) -> None:
    """Remove variables that became unused, as the target may lack their type."""
    unread: dict[Graph, set[Value]] = {}
    for each in [each for each in moved.nested() if each.variables]:
        used = {*each.outputs, *each.all_inputs}.union(*(node.uses for node in each.nodes))
        unread[each] = {*each.variables} - used
    if not any(unread.values()):
        return
    read = {value.name for node in source.walk() for value in node.uses}.union(value.name for value in created)
    for each, values in unread.items():
        each.variables = [v for v in each.variables if v not in values or v.name not in read]


def _used_opsets(moved: Graph, target: Target, source: Graph) -> Mapping[str, int]:
    used = {node.domain for node in moved.walk()}
    kept = {domain: version for domain, version in target.opsets.items() if domain in used or domain in source.opsets}
    return kept or dict(target.opsets)


@dataclass(slots=True)
class RetargetState:
    """State shared by the rewriters of a graph and its subgraphs.

    ``lowering`` and ``casting`` are stacks of the ops being lowered and cast, ``functions`` the local functions that
    were kept, ``widened`` the converted constants by source, ``plans`` a cache for the runtime.
    """

    legalizer: Legalizer
    changes: list[Change] = field(default_factory=list)
    functions: set[Operator] = field(default_factory=set)
    lowering: list[tuple[Op, Sequence[Value | None], str]] = field(default_factory=list)
    casting: list[Op] = field(default_factory=list)
    widened: dict[tuple[Value, DType], Value] = field(default_factory=dict)
    unchanged: dict[Hashable, Sequence[Known | None] | None] = field(default_factory=dict)
    plans: dict[Hashable, Any] = field(default_factory=dict)


class _Refused(Exception):
    """The target cannot express a call, for these reasons."""

    def __init__(self, reasons: Sequence[str]) -> None:
        super().__init__(*reasons)
        self.reasons = list(dict.fromkeys(reasons))


class Retargeting(Rewriter):
    """The rewriter of retargeting. ``path`` is the path of a subgraph."""

    def __init__(self, source: Graph, context: RetargetState, *, outer: Rewriter | None = None, path: str = "") -> None:
        super().__init__(source, lambda rewriter, call: self._decide(call), outer=outer)
        self.context = context
        self.path = path
        self.change = Change("", "", "")
        self.form: LegalCall | None = None

    def inner(self, subgraph: Graph, attribute: str) -> Rewriter:
        label = "" if self.node is None else f"{self.node.label}/"
        return Retargeting(subgraph, self.context, outer=self, path=f"{self.path}{label}{attribute}/")

    # ----- nodes of the source ------------------------------------------------------------------------------------

    def visit(self, node: Node) -> None:
        self.form = None
        self.change = change = Change.of(node, self.path + node.label, "kept")
        start = len(self.nodes)
        super().visit(node)
        if change.action not in ("kept", "adapted", "refused"):
            change.count(self.nodes[start:])
        self.context.changes.append(change)

    def stays_unchanged(self, node: Node) -> bool:
        if self.outer is not None or (kind := kind_of(node)) is None:
            return False
        known = self.context.unchanged.get(kind, ())
        if known == ():
            known = self.context.unchanged[kind] = self._cached_outputs(node)
        if known is None:
            return False
        give(node, known)
        return True

    def _cached_outputs(self, node: Node) -> Sequence[Known | None] | None:
        """Cached outputs of a node that stays unchanged, shared by identical nodes."""
        if not isinstance(node.op, Op):
            return None
        definitions().load(node.domain)
        stand_in = Node(node.op, node.version, [tracked(v) for v in node.inputs], node.attributes, node.outputs)
        try:
            inputs, attributes = bind(stand_in)
            known = infer_call(node.op, inputs, attributes, len(node.outputs))
            form = self.context.legalizer.of(Call(node.op, inputs, attributes, len(node.outputs), stand_in, known))
        except TenonnxError:
            return None
        whole = len(known) >= len(node.outputs) and all(map(_is_whole, known[: len(node.outputs)]))
        return known if whole and form.as_written and not were_read(stand_in) else None

    def replacement(self, node: Node, call: Call | None) -> _Results:
        if call is None:
            if problem := self.context.legalizer.opaque_problem(node):
                self._refuse(node, [problem], lambda: not self.context.legalizer.opaque_problem(node))
            return None
        try:
            return super().replacement(node, call)
        except _Refused as refused:
            self._refuse(node, refused.reasons, functools.partial(self._has_form, call))
            return None

    def keep(self, node: Node) -> None:
        legalizer, form = self.context.legalizer, self.form
        version = legalizer.target.version(node.domain)
        if form is not None:
            node._replace_fields(inputs=tuple(self.adopt(v) for v in form.inputs), attributes=form.attributes)
        if version not in (None, node.version) and (isinstance(node.op, Op) or node.domain == "ai.onnx"):
            node._replace_fields(version=version)
        if legalizer.is_local(node.op):
            self.context.functions.update(each.op for each in (node, *body_nodes(node.op)))
        super().keep(node)

    def _output(self, value: Value) -> Value:
        try:
            return super()._output(value)
        except _Refused as refused:
            change = Change(value.name, "graph output", "")
            change.refuse(refused.reasons, "add an Identity before the output")
            self.context.changes.append(change)
            return self.copy(value)

    def as_output(self, value: Value) -> Value:
        output = super().as_output(value)
        producer = None if output is value else output.producer
        if producer is not None and (version := self.context.legalizer.target.version(producer.domain)) is not None:
            producer._replace_fields(version=version)
        return output

    def _refuse(self, node: Node, reasons: Sequence[str], has_form: Callable[[], bool]) -> None:
        """Report an unsupported node. ``has_form`` tests whether the current target supports it."""
        from tenonnx.transforms.suggestions import advice, newer_targets  # imported lazily, as few conversions need it

        legalizer, first = self.context.legalizer, None
        for newer in newer_targets(legalizer.graph, legalizer.target):
            self.context.legalizer = Legalizer(newer, legalizer.graph)
            if has_form():
                first = newer.version("ai.onnx")
                break
        self.context.legalizer = legalizer
        self.change.refuse(reasons, advice(node, legalizer.target, legalizer.registry, first))

    # ----- calls --------------------------------------------------------------------------------------------------

    def _decide(self, call: Call) -> _Results:
        node = call.node
        action, reason, result = self._convert_call(call)
        if node is not None:
            self.change.action, self.change.reason = action, reason
        if not isinstance(result, LegalCall):
            return result
        if node is None:
            inputs = [self.adopt(v) for v in result.inputs]
            known = call.known[: call.outputs]
            return self.add(call.op, inputs, {}, known, version=result.version, written=result.attributes)
        self.form = None if result.as_written else result
        return None

    def _has_form(self, call: Call) -> bool:
        result = False
        with suppress(_Refused), self.attempt():
            self._convert_call(call)
            result = True
            raise _Refused(())  # reverts the attempt
        return result

    def _convert_call(self, call: Call) -> tuple[str, str, LegalCall | Sequence[Value | None]]:
        """Convert a call; returns the action, the reason, and the legal form or results. Raises ``_Refused``."""
        reasons: list[str] = []
        try:
            form = self.context.legalizer.of(call)
        except (NotRepresentable, TypeMismatch, UnsupportedOp) as error:
            reasons.append(error.what)
        else:
            if form.as_written:
                return "kept", "", form
            was = "" if call.node is None else f"from version {call.node.version} to {form.version}"
            return "adapted", was, form
        self._check_types(call, reasons)
        ways: Ways = list(self._ways(call))
        if (runtime := self.context.legalizer.target.runtime) is not None:
            ways = runtime.ways(self, call, ways)
        for action, way in ways:
            last = call.node is None and way is ways[-1][1]  # if it fails, the enclosing attempt fails, too
            try:
                with nullcontext() if last else self.attempt():
                    results = way()
            except (NotRepresentable, TypeMismatch, UnsupportedOp) as error:
                reasons.append(error.what)
            except _Refused as refused:
                if action != "cast":  # a missing Cast would hide the actual reason
                    reasons += refused.reasons
            else:
                if results is not None:
                    return action, reasons[0], results
        raise _Refused(reasons)

    def _check_types(self, call: Call, reasons: Sequence[str]) -> None:
        """Fail early on type errors: trying every lowering of each call in a body takes exponential time."""
        try:
            call.known  # noqa: B018
        except TypeMismatch as error:
            raise _Refused([*reasons, error.what]) from error

    def _ways(self, call: Call) -> Iterator[tuple[str, Callable[[], _Results]]]:
        """Candidates to replace a call that the target does not support, best first."""
        op = call.op
        if op.pure:
            yield "folded", lambda: self.static_results(call.known, call.inputs)
        for lowering in self._lowerings(call):
            yield "lowered", functools.partial(self.lowered, call, lowering)
        if not op.primitive:
            yield "inlined" if body_nodes(op) else "expanded", functools.partial(self._expanded, call)
        if op not in self.context.casting:
            for narrow, wide in self.context.legalizer.wider(call):
                yield "cast", functools.partial(self._cast, call, narrow, wide)

    def _lowerings(self, call: Call) -> Iterator[Callable[..., Any]]:
        lowering = self.context.lowering
        if not call.op.lowerings or any(v is not None and v.type is None for v in call.inputs):
            return
        if _key(call) in lowering or sum(op is call.op for op, _, _ in lowering) >= MAXIMUM_NESTING:
            return  # recursion: the body of an older op led back to this op
        for older, function in call.op.lowerings:
            version = None if older is None else self.context.legalizer.target.version(older.domain)
            if older is None or (version is not None and _makes_progress(older, version)):
                yield function

    def lowered(self, call: Call, lowering: Callable[..., Any]) -> _Results:
        counted = {"_outputs": call.outputs} if _counts_outputs(lowering) else {}
        attributes = {name: self.reopened(a, call) for name, a in call.attributes.items()}
        with _pushed(self.context.lowering, _key(call)), foreseeing(call.op.title, call.inputs, call.attributes):
            result = lowering(*call.inputs, **attributes, **counted)
        return result if result is None or isinstance(result, tuple) else (result,)

    def _expanded(self, call: Call) -> _Results:
        inner = body_nodes(call.op)
        missing = [n.title for n in inner if not isinstance(n.op, Op)]
        if missing:
            raise NotRepresentable(
                f"{call.op.title} has operators that no installed package defines: {', '.join(missing)}"
            )
        try:
            return self.expand(call)
        except _Refused as refused:
            within = f"in function {call.op.name}: " if inner else ""
            raise _Refused([within + reason for reason in refused.reasons]) from refused
        except (LimitExceeded, NotRepresentable):
            raise
        except TenonnxError as error:
            raise NotRepresentable(error.what) from error

    def _cast(self, call: Call, narrow: DType, wide: DType) -> _Results:
        """The op between casts to a wider element type that the target accepts."""
        cast = operators().cast
        with _pushed(self.context.casting, call.op):  # the target may lack Cast, which must not be cast in turn
            widen = self._widened if narrow in QUANTIZED else cast
            inputs = [
                widen(v, wide) if v is not None and isinstance(v.type, TensorType) and v.dtype is narrow else v
                for v in call.inputs
            ]
            attributes = {name: self.reopened(a, call) for name, a in call.attributes.items()}
            results = self.call(call.op, inputs, attributes, call.outputs)
            kinds = [None if k is None else k.type for k in call.known]
            return [
                cast(v, k.dtype) if v is not None and isinstance(k, TensorType) and v.dtype is not k.dtype else v
                for v, k in zip(results, kinds, strict=False)
            ]

    def _widened(self, value: Value, wide: DType) -> Value:
        """A constant in a wider type, converted once."""
        cached = self.context.widened.get((value, wide))
        if cached is None:
            assert value.data is not None
            contents = Widened(value.data, wide)
            cached = Value(self.name(f"{value.name}/{wide}"), contents.type, data=contents, graph=value.graph)
            self.context.widened[value, wide] = cached
            if value.graph is not None and value in value.graph.variables:
                value.graph.variables.append(cached)
        return cached


def _is_whole(known: Known | None) -> bool:
    """Whether the rank is known, and the contents, if any, do not come from an input."""
    return (
        known is not None
        and isinstance(known.type, TensorType)
        and known.type.shape is not None
        and not isinstance(known.data, TrackedConstant)
    )


def _makes_progress(older: Op, version: int) -> bool:
    """Whether a lowering to ``older`` makes progress; newer definitions of that op are expressed by their bodies."""
    return (older.before is None or version < older.before) and _can_reach(older, version)


def _can_reach(op: Op, version: int) -> bool:
    """Whether an op exists at a version, or can be lowered to one that does."""
    return op.since <= version or any(older is None or _can_reach(older, version) for older, _ in op.lowerings)


def _key(call: Call) -> tuple[Op, Sequence[Value | None], str]:
    return call.op, call.inputs, repr(call.attributes)


@functools.cache
def _counts_outputs(lowering: Callable[..., Any]) -> bool:
    return "_outputs" in inspect.signature(lowering).parameters


@contextmanager
def _pushed(items: list[Item], item: Item) -> Iterator[None]:
    """Push ``item`` on ``items`` within the block."""
    items.append(item)
    try:
        yield
    finally:
        items.pop()


def retarget_where_needed(
    graph: Graph, target: Target, domains: Collection[str] | None = None, *, refuse: bool = True
) -> Retargeted:
    """The graph itself if it is legal in the target already, else as ``retarget_to``."""
    if is_as_written(graph, target, domains):
        return Retargeted(graph, list(all_kept(graph)))
    return retarget_to(graph, target, refuse=refuse)
