"""Gradients of branches and loops: the way back is a branch or a Scan of its own."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any

import tenonnx_standard as ops
from tenonnx.extend import (
    Graph,
    NotDifferentiable,
    TensorType,
    Type,
    Value,
    between,
    dependents,
    dims,
    inline,
    pullback,
    subgraph,
    subgraph_types,
)
from tenonnx.graph.symbolic import symbols_of
from tenonnx.graph.values import Node
from tenonnx.op.binding import known_op
from tenonnx.op.build import Builder, align_captures
from tenonnx.transforms.rewrite import copy_graph
from tenonnx_standard.control_flow import if_, inserted, loop, scan
from tenonnx_standard.logic import greater


def _is_float(kind: Type | None) -> bool:
    return isinstance(kind, TensorType) and kind.dtype.is_float


def _random(nodes: Sequence[Node]) -> list[Node]:
    """The nodes that give something else each time, or have subgraphs that do."""
    return [node for node in nodes if not known_op(node).pure or any(_random(g.nodes) for g in node.subgraphs)]


# ----- If -------------------------------------------------------------------------------------------------------------


@if_.vjp
def _(
    g: Any, y: Any, cond: Value, *, then_branch: Graph, else_branch: Graph, _captures: Any, _wanted: Any
) -> tuple[Value | None, ...]:
    cotangents = {k: v for k, v in enumerate(g if isinstance(g, tuple) else (g,)) if v is not None}
    wrt = [k for k, v in enumerate(_captures) if v in _wanted and _is_float(v.type)]

    def back(branch: Graph) -> Graph:
        if random := _random(branch.nodes):
            raise NotDifferentiable(
                "If: a branch is computed again on the way back, so that it must not be random",
                given=", ".join(node.title for node in random),
                do="draw the random numbers outside of the branch",
            )
        joint = pullback(branch, list(cotangents), wrt)
        part = between(joint, joint.all_inputs, joint.outputs[len(branch.outputs) :])
        return subgraph(lambda: inline(part, [*_captures, *cotangents.values()]), name=branch.name)

    if not wrt:
        return (None,)
    found = if_(cond, then_branch=back(then_branch), else_branch=back(else_branch))
    gradients = dict(zip(wrt, found if isinstance(found, tuple) else (found,), strict=True))
    return (None, *(gradients.get(k) for k in range(len(_captures))))


# ----- loops ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Track:
    """A value of each iteration: how they lie in a tensor, and whether from the last one to the first."""

    value: Value
    axis: int = 0
    reversed: int = 0


@dataclass(frozen=True, slots=True)
class Loop:
    """What Scan and Loop have in common.

    The body takes ``lead`` values, the carried ones, and an element of each of ``inputs``; it gives ``conditions``
    values, the carried ones, and an element of each of ``outputs``. A *place* is a position among the initial values,
    the inputs and the captures.
    """

    title: str
    body: Graph
    initial: Sequence[Value]
    finals: Sequence[Value | None]
    inputs: Sequence[Track]
    outputs: Sequence[Track | None]
    captures: Sequence[Value]
    lead: int = 0
    conditions: int = 0

    def active(self, wanted: Collection[Value]) -> tuple[list[int], list[int], list[int]]:
        """The places of carried values, captures and inputs that have a part in the gradient."""
        count, values = len(self.initial), (*self.initial, *(t.value for t in self.inputs), *self.captures)
        inner = [*self.body.all_inputs[self.lead :], *self.body.captures]
        after = self.body.outputs[self.conditions :]
        places = {k for k, v in enumerate(values) if v in wanted}
        while True:
            reached = dependents(self.body.nodes, [inner[k] for k in places])
            more = {k for k in range(count) if after[k] in reached} - places
            if not more:
                break
            places |= more
        for k in range(count):
            kind = inner[k].type
            if k in places and not (isinstance(kind, TensorType) and not kind.dtype.is_float):
                self.check(k)
        floats = [k for k in sorted(places) if _is_float(inner[k].type)]
        before, behind = count, count + len(self.inputs)
        return (
            [k for k in floats if k < before],
            [k for k in floats if k >= behind],
            [k for k in floats if before <= k < behind],
        )

    def check(self, place: int) -> None:
        """Refuse a carried value of which one for each iteration cannot be stacked."""
        kinds = [v.type for v in self.initial]
        copy = copy_graph(self.body)
        before = [v.type for v in copy.all_inputs]
        before[self.lead : self.lead + len(kinds)] = kinds
        after = subgraph_types(self.title, copy, before)[self.conditions + place]
        if not isinstance(after, TensorType) or _differ(after, kinds[place]):
            raise NotDifferentiable(
                f"{self.title}: a carried value must be a tensor that keeps its shape to have a gradient",
                given=f'"{self.initial[place].name}", {kinds[place]} before the first iteration and {after} after it',
                do="carry a tensor of fixed shape, or stack values as an output of the loop",
            )


def _differ(after: TensorType, before: Type | None) -> bool:
    """Whether two shapes are not the same, as far as they are known in the same terms."""
    if not isinstance(before, TensorType) or before.shape is None or after.shape is None:
        return False
    if len(before.shape) != len(after.shape):
        return True
    apart = [(a, b) for a, b in zip(before.shape, after.shape, strict=True) if a != b and None not in (a, b)]
    return any(symbols_of(a) <= symbols_of(b) and (symbols_of(a) or isinstance(b, int)) for a, b in apart)


def _stackable(value: Value) -> bool:
    """Whether a value surely has the same shape in each iteration."""
    shape = value.type.shape if isinstance(value.type, TensorType) else None
    return shape is not None and None not in shape


def _stored(joint: Graph, varying: set[Value], outputs: Sequence[Value], wanted: Sequence[Value]) -> list[Value]:
    """What the way back, to ``wanted``, reads of the way forward, to ``outputs``, in an iteration.

    What is the same in all iterations, or of a shape that may not be, is not among it: it is computed again.
    """
    forward = set(between(joint, (), outputs).nodes)
    needed, stored = set(wanted), []
    for node in reversed(joint.nodes):
        found = [v for v in node.outputs if v in needed]
        if found and node in forward and (_random([node]) or all(v in varying and _stackable(v) for v in found)):
            stored += found
        elif found:
            needed.update(node.uses)
    return [v for v in joint.all_inputs if v in needed and v in varying] + stored


def _fixed(joint: Graph, varying: set[Value], wanted: Sequence[Value]) -> list[Value]:
    """What the way back reads, or gives, that is the same in all iterations."""
    nodes = between(joint, (), wanted).nodes
    used = [v for node in nodes if any(v in varying for v in node.outputs) for v in node.uses]
    return [v for v in dict.fromkeys([*used, *wanted]) if v not in varying and v.producer is not None]


def _back(
    forward: Loop, g_finals: Sequence[Value | None], g_outputs: Sequence[Value | None], wanted: Collection[Value]
) -> tuple[Value | None, ...]:
    """The gradients of initial values, inputs and captures, by a Scan from the last iteration to the first.

    The loop itself is made to give what the way back reads of each iteration.
    """
    body, count, lead, inputs = forward.body, len(forward.initial), forward.lead, forward.inputs
    carried, captured, tracks = places = forward.active(wanted)
    stacked = [k for k, g in enumerate(g_outputs) if g is not None and _is_float(g.type)]
    of = [forward.conditions + k for k in (*carried, *(count + k for k in stacked))]
    if not of or not any(places):
        return (None,)
    joint = pullback(body, of, [lead + k for group in places for k in group])
    size, total = len(body.all_inputs), len(body.all_inputs) + len(forward.captures)
    formals, outer, cotangents = joint.all_inputs[:size], joint.all_inputs[size:total], joint.all_inputs[total:]
    outputs, gradients = joint.outputs[: len(body.outputs)], joint.outputs[len(body.outputs) :]
    random = [v for node in joint.nodes if _random([node]) for v in node.outputs if v is not None]

    stored = _stored(joint, dependents(joint.nodes, [*formals, *random]), outputs, gradients)
    for k in range(count):
        if formals[lead + k] in stored:
            forward.check(k)
    tracked = dict(zip(formals[lead + count :], inputs, strict=True))
    tracked |= dict(zip(outputs[forward.conditions + count :], forward.outputs, strict=True))
    stored = stored or [formals[-1 if inputs else 0]]
    fresh = [v for v in stored if tracked.get(v) is None]
    if fresh:
        part = between(joint, joint.all_inputs, [*outputs, *fresh])
        kinds = [(v.name, v.type) for v in formals]
        wider = subgraph(lambda *values: inline(part, [*values, *forward.captures]), kinds, name=body.name)
        tracked |= dict(zip(fresh, _widen(forward, wider, fresh), strict=True))

    fixed = _fixed(joint, dependents(joint.nodes, [*formals, *cotangents, *random]), gradients)
    contents = inline(between(joint, outer, fixed), forward.captures)
    way_back = between(joint, [*cotangents, *stored, *outer, *fixed], gradients)
    states, sums = len(carried), len(carried) + len(captured)

    def step(*values: Value) -> list[Value]:
        found = inline(way_back, [*values[:states], *values[sums:], *forward.captures, *contents])
        totals = [a + b for a, b in zip(values[states:sums], found[states:sums], strict=True)]
        return [*found[:states], *totals, *found[sums:]]

    last = [ops.zeros_like(forward.initial[k]) if g_finals[k] is None else g_finals[k] for k in carried]
    zeros = [ops.zeros_like(forward.captures[k - count - len(inputs)]) for k in captured]
    read = [replace(forward.outputs[k], value=g_outputs[k]) for k in stacked] + [tracked[v] for v in stored]
    like = [*cotangents[:states], *zeros, *cotangents[states:], *stored]

    def run() -> tuple[Value, ...]:
        return scan(
            *last, *zeros, *(track.value for track in read),
            body=subgraph(step, [(f"back_{k}", v.type) for k, v in enumerate(like)], name=f"{body.name}_back"),
            num_scan_inputs=len(read),
            scan_input_axes=[track.axis for track in read],
            scan_input_directions=[1 - track.reversed for track in read],
            scan_output_axes=[inputs[k - count].axis for k in tracks],
            scan_output_directions=[1 - inputs[k - count].reversed for k in tracks],
        )  # fmt: skip

    found = _tuple(run() if inputs else _unless_empty(read[0].value, run, [*last, *zeros]))
    given = dict(zip((*carried, *captured, *tracks), found, strict=True))
    for k in tracks:  # a Scan of length 0 does not know dims that are not static
        given[k] = ops.reshape_like(given[k], inputs[k - count].value)
    return tuple(given.get(k) for k in range(count + len(inputs) + len(forward.captures)))


def _unless_empty(track: Value, run: Callable[[], Any], otherwise: Sequence[Value]) -> Any:
    """What ``run`` gives, which reads ``track``, unless there was no iteration: a Scan may refuse that."""
    length = track.shape[0]
    if isinstance(length, int) and length > 0:
        return run()
    branches = {"then_branch": subgraph(run, name="back"), "else_branch": subgraph(lambda: otherwise, name="none")}
    return if_(greater(dims(track)[0], 0), **branches)


def _widen(forward: Loop, body: Graph, fresh: Sequence[Value]) -> list[Track]:
    """Let the node of a loop run ``body``, which gives so many values more, and stack these."""
    y = [*forward.finals, *(None if track is None else track.value for track in forward.outputs)]
    node = next(v.producer for v in y if v is not None)
    graph = next(v.graph for v in y if v is not None)
    length = next((t.value.shape[t.axis] for t in (*forward.inputs, *forward.outputs) if t and t.value.rank), None)
    added = [Value(graph.unique_name(f"{v.name}/stored"), inserted(v.type, 0, length), graph=graph) for v in fresh]
    held = [Value(graph.unique_name(f"{node.name}/unused"), graph=graph) if v is None else v for v in y]
    axes = {n: [*a, *[0] * len(added)] for n, a in node.attributes.items() if n.startswith("scan_output_")}
    node.captures = align_captures([body], Builder(graph))
    node.attributes = {**node.attributes, "body": body, **axes}
    node.outputs = (*held, *added)
    for value in node.outputs:
        value.producer = node
    return [Track(value) for value in added]


def _tuple(found: Any) -> tuple[Any, ...]:
    return found if isinstance(found, tuple) else (found,)


@scan.vjp
def _(
    g: Any, y: Any, *inputs: Value, body: Graph, num_scan_inputs: int, _captures: Any, _wanted: Any, **axes: Any
) -> tuple[Value | None, ...]:
    g, y = _tuple(g), _tuple(y)
    states = len(inputs) - num_scan_inputs

    def tracks(values: Sequence[Value | None], side: str) -> list[Any]:
        where = axes[f"scan_{side}_axes"] or [0] * len(values)
        backward = axes[f"scan_{side}_directions"] or [0] * len(values)
        return [None if v is None else Track(v, *how) for v, *how in zip(values, where, backward, strict=True)]

    read, given = tracks(inputs[states:], "input"), tracks(y[states:], "output")
    return _back(
        Loop("Scan", body, inputs[:states], y[:states], read, given, _captures), g[:states], g[states:], _wanted
    )


@loop.vjp
def _(
    g: Any, y: Any, M: Any, cond: Any, *v_initial: Value, body: Graph, _outputs: Any, _captures: Any, _wanted: Any
) -> tuple[Value | None, ...]:
    g, y = _tuple(g), _tuple(y)
    states = len(v_initial)
    given = [None if v is None else Track(v) for v in y[states:]]
    forward = Loop("Loop", body, v_initial, y[:states], [], given, _captures, lead=2, conditions=1)
    return (None, None, *_back(forward, g[:states], g[states:], _wanted))
