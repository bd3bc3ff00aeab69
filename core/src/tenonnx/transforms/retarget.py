"""Retargeting: the same graph at other opset versions and for other domains."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np

from tenonnx.errors import LimitExceeded, NotRepresentable, TenonnxError, TypeMismatch, UnsupportedOp
from tenonnx.graph.definitions import definitions, in_registry_of_graph
from tenonnx.graph.dtypes import DType
from tenonnx.graph.graph import Graph
from tenonnx.graph.types import TensorType, Type
from tenonnx.graph.values import Node, Value, operator
from tenonnx.op.binding import foreseeing
from tenonnx.op.dtypes import type_code
from tenonnx.op.graph_inference import infer
from tenonnx.op.infer import Known, infer_call
from tenonnx.op.op import Op
from tenonnx.op.rules import find_rule
from tenonnx.op.signature import Input
from tenonnx.op.spelling import form_at, spell_attributes
from tenonnx.registry.registry import Registry, default_registry
from tenonnx.transforms.advice import advice, body_nodes, first_versions
from tenonnx.transforms.overridable import sparing_defaults
from tenonnx.transforms.prune import drop_dead_nodes, needed_nodes
from tenonnx.transforms.report import Change, Retargeted, interface_refusals, label_of, refusal, way_to
from tenonnx.transforms.rewrite import Call, Rewriter
from tenonnx.transforms.target import INTERNAL_DOMAIN, Target, target_for

#: For each element type the wider ones that hold all its values, nearest first. The integer types stand before the
#: floating-point ones, which only ops take that choose among elements and do not compute with them.
WIDER: Mapping[DType, tuple[DType, ...]] = {
    DType.bool: (DType.uint8, DType.int32, DType.int64, DType.float32),
    DType.uint8: (DType.int32, DType.int64, DType.float32, DType.float64),
    DType.int8: (DType.int32, DType.int64, DType.float32, DType.float64),
    DType.uint16: (DType.int32, DType.int64, DType.float32, DType.float64),
    DType.int16: (DType.int32, DType.int64, DType.float32, DType.float64),
    DType.int32: (DType.int64, DType.float64),
    DType.uint32: (DType.int64, DType.uint64, DType.float64),
    DType.float16: (DType.float32, DType.float64),
    DType.bfloat16: (DType.float32, DType.float64),
    DType.float32: (DType.float64,),
}

#: Lowerings of one op within each other beyond this number go in circles.
MAXIMUM_NESTING = 3


def retarget(
    graph: Graph,
    opset_version: int | Mapping[str, int] | None = None,
    domains: Collection[str] | None = None,
    target: str | None = None,
) -> Graph:
    """``graph`` at another opset, with ops of ``domains`` alone, and within what the named target takes.

    ``opset_version`` is a number for ``ai.onnx``, or a mapping from domains to numbers.

    Each node is kept, else respelled, lowered to an older op, or expanded by its body. Raises ``NotRepresentable``
    naming every node that has no form in the target, with the reason.
    """
    return retarget_to(graph, target_for(graph, opset_version, domains, target)).graph


@in_registry_of_graph
def retarget_to(graph: Graph, target: Target, *, refuse: bool = True, spare_defaults: bool = True) -> Retargeted:
    """``graph`` in the ops of ``target``. With ``refuse`` False, nodes without a form are left and reported.

    Unless ``spare_defaults`` is False, the contents of inputs that have a default are not counted on where it can be
    helped: see ``sparing_defaults``.
    """
    move = functools.partial(_retargeted, target=target)
    result = sparing_defaults(graph, move) if spare_defaults else move(graph)
    if refuse and result.refused:
        raise refusal(result.refused, target)
    return result


def _retargeted(graph: Graph, target: Target) -> Retargeted:
    infer(graph, strict=False)
    mover = _Mover(target, graph.registry or default_registry())
    rewriter = _Retargeting(graph, mover.decide)
    rewriter.mover = mover
    moved = rewriter.run()
    if any(c.action == "expanded" for c in mover.changes) and needed_nodes(graph, graph.outputs) == graph.nodes:
        drop_dead_nodes(moved)  # a body may undo what the one before it did
    firsts = first_versions(graph, target, list(mover.stuck), functools.partial(_refused, graph, mover.registry))
    for node, change in mover.stuck.items():
        change.do = advice(node, target, mover.registry, firsts.get(node))
    mover.finish(rewriter)
    mover.changes += interface_refusals(graph, target)
    moved.opsets = dict(_used_opsets(moved, target, graph))
    moved.functions = {key: f for key, f in graph.functions.items() if key in mover.kept_functions}
    if moved.opsets != graph.opsets:
        moved.ir_version = None
    return Retargeted(moved, mover.changes)


def _refused(graph: Graph, registry: Registry, target: Target, nodes: Collection[Node]) -> Collection[Node]:
    """Which of some nodes have no form in a target."""
    mover = _Mover(target, registry)
    rewriter = _Retargeting(
        graph, lambda rewriter, call: mover.decide(rewriter, call) if rewriter.node in nodes else None
    )
    rewriter.mover = mover
    rewriter.run()
    return mover.stuck


def _used_opsets(moved: Graph, target: Target, source: Graph) -> Mapping[str, int]:
    used = {node.domain for node in moved.walk()}
    kept = {domain: version for domain, version in target.opsets.items() if domain in used or domain in source.opsets}
    return kept or dict(target.opsets)


class _Retargeting(Rewriter):
    """The walk, with the steps that can be taken back."""

    mover: _Mover

    path: str = ""

    def visit(self, node: Node) -> None:
        start, refused = len(self.graph.nodes), len(self.mover.refusals)
        outer = self.mover.begin(node)
        super().visit(node)
        self.mover.record(self.path + label_of(node), node, self.graph.nodes[start:], self.mover.refusals[refused:])
        self.mover.actions = outer

    def keep(self, node: Node, **changed: Any) -> Node:
        refused = len(self.mover.refusals)
        kept = super().keep(node, **changed)
        del self.mover.refusals[refused:]  # those of the nodes inside, which are recorded
        return kept

    def _attribute(self, attribute: Any, captures: Sequence[Value]) -> Any:
        if isinstance(attribute, Graph):
            inner = _Retargeting(attribute, self.decide, parent=self)
            inner.mover = self.mover
            inner.path = self.path + ("" if self.node is None else way_to(attribute, self.node))
            return inner.run()
        return super()._attribute(attribute, captures)

    def nested(self, graph: Graph) -> Rewriter:
        made = super().nested(graph)
        assert isinstance(made, _Retargeting)
        made.mover = self.mover
        return made


def _leads_to(op: Op, version: int) -> bool:
    """Whether an op is there at a version, or may be said by one that is."""
    return op.since <= version or any(older is None or _leads_to(older, version) for older, _ in op.lowerings)


class _Mover:
    """Decides what becomes of each call on its way to the target."""

    def __init__(self, target: Target, registry: Registry) -> None:
        self.target = target
        self.registry = registry
        self.changes: list[Change] = []
        self.refusals: list[str] = []
        self.stuck: dict[Node, Change] = {}
        self.actions: list[tuple[str, str]] = []
        self.kept_functions: set[tuple[str, str, str]] = set()
        self.casting: list[Op] = []
        self.lowering: list[tuple[Op, tuple[Value | None, ...], str]] = []

    def begin(self, node: Node) -> list[tuple[str, str]]:
        """Begin with a node; returns what was done so far to the node that holds it."""
        outer, self.actions = self.actions, []
        if not isinstance(node.op, Op):
            version = self.target.version(node.domain)
            unknown = "no installed package knows the op"
            if version is None:
                self.refusals.append(f"{unknown}, and domain {node.domain} is not in the target")
            elif version != node.version:
                self.refusals.append(f"{unknown}, so it cannot move from version {node.version} to {version}")
            elif problem := self.target.problem(node.op, version, _types(node.inputs), _types(node.outputs)):
                self.refusals.append(f"{unknown}, and {problem}")
        return outer

    def record(self, label: str, node: Node, made: Sequence[Node], refusals: Sequence[str]) -> None:
        """Note what became of a node of the source."""
        op = f"{node.domain}::{node.op_type}@{node.version}"
        if refusals:
            reasons = list(dict.fromkeys(refusals))
            reason = reasons[0] if len(reasons) == 1 else f"{reasons[0]}; instead of it, {reasons[-1]}"
            self.stuck[node] = Change(label, op, "refused", reason, reasons=reasons)
            self.changes.append(self.stuck[node])
            return
        action, reason = self.actions[0] if self.actions else ("kept", "")
        into: dict[str, int] = {}
        if action not in ("kept", "respelled"):
            for each in made:
                into[each.op_type] = into.get(each.op_type, 0) + 1
        self.changes.append(Change(label, op, action, reason, into))

    def finish(self, rewriter: Rewriter) -> None:
        for node in rewriter.graph.walk():
            version = self.target.version(node.domain)
            if version is not None and isinstance(node.op, Op):
                node.version = version

    # ----- one call -----------------------------------------------------------------------------------------------

    def decide(self, rewriter: Rewriter, call: Call) -> Sequence[Value | None] | None:
        reasons: list[str] = []
        for attempt in (self._keep, self._fold, self._lower, self._expand, self._cast):
            mark = _Mark(rewriter, self)
            try:
                found = attempt(rewriter, call, reasons)
            except (NotRepresentable, TypeMismatch, UnsupportedOp) as error:
                reasons.append(error.what)
                found = None
            if found is _KEPT:
                return None
            if found is not None:
                if len(self.refusals) == mark.refusals:
                    return found  # type: ignore[no-any-return]
                reasons += self.refusals[mark.refusals :]
            mark.restore()
        self.refusals += list(dict.fromkeys(reasons)) or [f"{call.op.title} has no form in the target"]
        return None

    def _keep(self, rewriter: Rewriter, call: Call, reasons: list[str]) -> Any:
        op = call.op
        if rewriter.source.root.functions.get((op.domain, op.name, "")) is op:
            return self._keep_function(rewriter, call, reasons)
        version = self.target.version(op.domain)
        if version is None:
            reasons.append(f"domain {op.domain} is not in the target")
            return None
        if not op.holds_at(version):
            since = f"exists from version {op.since}" if version < op.since else f"changed at version {op.before}"
            reasons.append(f"{op.domain}::{op.name} with this meaning {since}, the target has {version}")
            return None
        if op.domain == INTERNAL_DOMAIN or (not op.specified and not self.target.chooses):
            reasons.append(f"{op.domain}::{op.name} is not in the specification")
            return None
        node = call.node
        as_written = node is not None and _same_form(op, node.version, version)
        moved = node is None or node.version != version
        if moved and (unsaid := find_rule(op, "version")):
            with foreseeing(op.title, call.inputs, call.attributes):
                why = unsaid(version, *call.inputs, **call.attributes)
            if why:
                reasons.append(why)
                return None
        inputs, written = _written(op, call, version)
        outputs: Sequence[Known | None] = _known_outputs(call)
        if not outputs:
            outputs = infer_call(op, call.inputs, call.attributes, call.outputs)
        problem = self._dtype_problem(op, version, inputs, outputs)
        if problem:
            reasons.append(problem)
            return None
        if as_written:
            return _KEPT
        self.actions.append(("respelled", f"from version {node.version} to {version}" if node else ""))
        known = list(outputs) if node is None else infer_call(op, call.inputs, call.attributes, call.outputs)
        if call.outputs is not None:
            known = known[: call.outputs]
        if node is not None:
            known = [k if k is None or v is not None else None for k, v in zip(known, node.outputs, strict=False)]
        adopted = [rewriter.adopt(v) for v in inputs]
        return rewriter.add(
            op, adopted, call.attributes, known, version=version, written=self._rewritten(rewriter, written)
        )

    def _rewritten(self, rewriter: Rewriter, written: Mapping[str, Any]) -> dict[str, Any]:
        return {
            name: rewriter._attribute(a, ()) if isinstance(a, Graph) and a.root is not rewriter.graph.root else a
            for name, a in written.items()
        }

    def _keep_function(self, rewriter: Rewriter, call: Call, reasons: list[str]) -> Any:
        """A local function is kept where the target changes nothing inside it, which kernels by dtype may do."""
        op = call.op
        allowed = op.domain in self.target.opsets or op.domain in rewriter.source.root.opsets
        allowed = allowed and not self.target.chooses
        if (
            call.node is not None
            and allowed
            and all(self.target.version(n.domain) == n.version for n in body_nodes(op))
        ):
            self.kept_functions.add((op.domain, op.name, ""))
            return _KEPT
        reasons.append("what the function calls is not in the target as it is")
        return None

    def _lower(self, rewriter: Rewriter, call: Call, reasons: list[str]) -> Any:
        key = (call.op, call.inputs, repr(call.attributes))
        if not call.op.lowerings or key in self.lowering:
            return None  # the older op's body has led back here: it has no form in the target either
        if sum(op is call.op for op, _, _ in self.lowering) >= MAXIMUM_NESTING:
            return None  # the same, each time with other inputs
        self.lowering.append(key)
        try:
            return self._lowered(rewriter, call, reasons)
        finally:
            self.lowering.pop()

    def _lowered(self, rewriter: Rewriter, call: Call, reasons: list[str]) -> Any:
        for older, lowering in call.op.lowerings:
            if any(v is not None and v.type is None for v in call.inputs):
                return None
            version = None if older is None else self.target.version(older.domain)
            if older is not None and (version is None or (older.before is not None and version >= older.before)):
                continue  # lowering leads down: what has become of the op since is what its body says
            if older is not None and version is not None and not _leads_to(older, version):
                continue
            mark = _Mark(rewriter, self)
            self.actions.append(("lowered", reasons[0] if reasons else ""))
            counted = {"_outputs": call.outputs} if "_outputs" in inspect.signature(lowering).parameters else {}
            attributes = {name: rewriter.inside(rewriter._reopened, a, call) for name, a in call.attributes.items()}
            with foreseeing(call.op.title, call.inputs, call.attributes):
                result = rewriter.inside(lowering, *call.inputs, **attributes, **counted)
            if result is not None and len(self.refusals) == mark.refusals:
                return result if isinstance(result, tuple) else (result,)
            reasons += self.refusals[mark.refusals :]
            mark.restore()
        return None

    def _fold(self, rewriter: Rewriter, call: Call, reasons: list[str]) -> Any:
        """The results themselves, where they are known; so are those of shapes that are."""
        if not call.op.pure or any(v is not None and v.data is None for v in call.inputs):
            return None
        self.actions.append(("folded", reasons[0] if reasons else ""))
        return rewriter._folded(call.op, call.inputs, call.attributes, call.outputs)

    def _expand(self, rewriter: Rewriter, call: Call, reasons: list[str]) -> Any:
        if call.op.primitive:
            return None
        inner = body_nodes(call.op)
        self.actions.append(("inlined" if inner else "expanded", reasons[0] if reasons else ""))
        missing = [n.title for n in inner if not isinstance(n.op, Op)]
        if missing:
            raise NotRepresentable(f"no installed package knows what {call.op.title} holds: {', '.join(missing)}")
        refused = len(self.refusals)
        try:
            results = rewriter.expand(call)
        except (LimitExceeded, NotRepresentable):
            raise
        except TenonnxError as error:
            raise NotRepresentable(error.what) from error
        if inner:
            self.refusals[refused:] = [f"in function {call.op.name}: {text}" for text in self.refusals[refused:]]
        return results

    def _cast(self, rewriter: Rewriter, call: Call, reasons: list[str]) -> Any:
        """The op between casts to a wider element type that the target takes."""
        op, version = call.op, self.target.version(call.op.domain)
        if version is None or not op.holds_at(version) or definitions().operator("cast") is None or op in self.casting:
            return None
        known = infer_call(op, call.inputs, call.attributes, call.outputs)
        inputs, _ = _written(op, call, version)
        for narrow in dict.fromkeys(v.dtype for v in inputs if v is not None and isinstance(v.type, TensorType)):
            for wide in WIDER.get(narrow, ()):
                if narrow.is_float != wide.is_float and not op.selects:
                    continue
                if not self._takes(op, version, inputs, narrow, wide):
                    continue
                mark = _Mark(rewriter, self)
                self.actions.append(("cast", f"{op.title} does not take {narrow} at version {version}"))
                self.casting.append(op)  # the target may have no Cast, which is then not cast in its turn
                try:
                    results = rewriter.inside(_cast_around, rewriter, call, known, narrow, wide)
                finally:
                    self.casting.pop()
                if len(self.refusals) == mark.refusals:
                    return results
                mark.restore()
        return None

    def _takes(self, op: Op, version: int, inputs: Sequence[Value | None], narrow: DType, wide: DType) -> bool:
        """Whether the op takes ``wide`` wherever it is given ``narrow``."""
        table = self.registry.dtypes(op.domain, op.name, version)
        changed = False
        for position, value in enumerate(inputs):
            if value is None or not isinstance(value.type, TensorType) or value.dtype is not narrow:
                continue
            allowed = None if table is None else _allowed(table["inputs"], position)
            if allowed is not None and int(wide) not in allowed:
                return False
            changed = True
        return changed and (self.target.chooses or table is not None)

    def _dtype_problem(
        self, op: Op, version: int, inputs: Sequence[Value | None], known: Sequence[Known | None]
    ) -> str:
        table = self.registry.dtypes(op.domain, op.name, version)
        outputs = [None if k is None else k.type for k in known]
        kinds = _types(inputs)
        if table is not None:
            for where, types in (("inputs", kinds), ("outputs", outputs)):
                for position, kind in enumerate(types):
                    allowed = _allowed(table[where], position)
                    code = type_code(kind)
                    if allowed is not None and code is not None and code not in allowed:
                        shown = kind.dtype if isinstance(kind, TensorType) else kind
                        verb = "take" if where == "inputs" else "give"
                        return f"{op.domain}::{op.name} at version {version} does not {verb} {shown}"
        return self.target.problem(op, version, kinds, outputs)


_KEPT: Any = object()


class _Mark:
    """A point of the walk that can be gone back to."""

    def __init__(self, rewriter: Rewriter, mover: _Mover) -> None:
        self.rewriter, self.mover = rewriter, mover
        self.nodes, self.refusals, self.actions = len(rewriter.graph.nodes), len(mover.refusals), len(mover.actions)
        self.names, self.changes = len(rewriter.journal), len(mover.changes)

    def restore(self) -> None:
        del self.rewriter.graph.nodes[self.nodes :]
        del self.mover.refusals[self.refusals :]
        del self.mover.actions[self.actions :]
        del self.mover.changes[self.changes :]
        self.rewriter.forget_names(self.names)


def _types(values: Sequence[Value | None]) -> list[Type | None]:
    return [None if v is None else v.type for v in values]


def _same_form(op: Op, a: int, b: int) -> bool:
    return a == b or form_at(op, a) == form_at(op, b)


def _written(op: Op, call: Call, version: int) -> tuple[list[Value | None], dict[str, Any]]:
    """The inputs and attributes that a file at ``version`` has for a call.

    Raises ``NotRepresentable`` for what that version cannot say.
    """
    form = form_at(op, version)
    static: dict[str, Any] = {}
    inputs: list[Value | None] = []
    for position, value in enumerate(call.inputs):
        parameter = op.signature.input_at(position)
        if parameter.name in form.lacks:
            if value is not None:
                raise NotRepresentable(f'{op.domain}::{op.name} has no input "{parameter.name}" at version {version}')
        elif parameter.name in form.moved:
            if value is not None:
                is_number = parameter.name in form.vectors or isinstance(form.defaults[parameter.name], float)
                static[parameter.name] = _as_attribute(op, parameter, value, version, is_number)
        else:
            inputs.append(value)
    while inputs and inputs[-1] is None:
        inputs.pop()
    node = call.node
    if node is not None and _same_form(op, node.version, version):
        return inputs, dict(node.attributes)
    first = next((v for v in call.inputs if v is not None), None)
    rank = first.rank if first is not None and isinstance(first.type, TensorType) else None
    return inputs, spell_attributes(op, version, call.attributes, static, rank)


def _as_attribute(op: Op, parameter: Input, value: Value, version: int, is_number: bool) -> Any:
    name = parameter.name
    if value.data is None:
        raise NotRepresentable(
            f'{op.domain}::{op.name} at version {version} has "{name}" as an attribute, and here it is computed'
        )
    array = value.data.array()
    if array.dtype == np.float64 and not np.array_equal(array, array.astype(np.float32), equal_nan=True):
        raise NotRepresentable(
            f'{op.domain}::{op.name} at version {version} holds "{name}" as float32, which would round it'
        )
    if is_number:
        return array.reshape(-1)[0].item()
    return array.reshape(-1).tolist() if parameter.index else array.tolist()


def _known_outputs(call: Call) -> list[Known | None]:
    if call.node is not None:
        return [None if v is None else Known(v.type) for v in call.node.outputs]
    return []


def _allowed(entries: Sequence[Any], position: int) -> Any:
    """The codes allowed at a position; the last entry holds for all further (variadic) ones."""
    return entries[min(position, len(entries) - 1)] if entries else None


def _cast_around(
    rewriter: Rewriter, call: Call, known: Sequence[Known | None], narrow: DType, wide: DType
) -> tuple[Value | None, ...]:
    def widened(value: Value | None) -> Value | None:
        if value is None or not isinstance(value.type, TensorType) or value.dtype is not narrow:
            return value
        return operator("cast", value, wide)  # type: ignore[no-any-return]

    results = rewriter.call(call.op, [widened(v) for v in call.inputs], call.attributes, call.outputs)
    back: list[Value | None] = []
    for value, entry in zip(results, known, strict=False):
        kind = None if entry is None else entry.type
        if value is not None and isinstance(kind, TensorType) and value.dtype is not kind.dtype:
            value = operator("cast", value, kind.dtype)
        back.append(value)
    return tuple(back)
