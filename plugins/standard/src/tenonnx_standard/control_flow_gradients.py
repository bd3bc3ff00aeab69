"""Gradients of If, Loop and Scan: the backward pass is an If or a Scan.

The backward pass recomputes a branch. A loop stacks the values of each iteration that the backward pass reads:

1. ``Iteration`` is the common interface of Scan and Loop; ``active`` finds the places with a gradient;
2. ``Joint`` is the body together with its gradient (``pullback``), and selects what to store per iteration;
3. ``_recorded`` runs the loop with a body that also outputs these values, in the forward pass;
4. ``LoopResiduals`` holds the residuals and computes gradients by a Scan from the last iteration to the first.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from typing import Any

import tenonnx_standard as ops
from tenonnx.extend import (
    Graph,
    Node,
    NotDifferentiable,
    TensorType,
    Type,
    Value,
    copy_graph,
    dims,
    inline,
    known_op,
    subgraph,
)
from tenonnx.extend.symbolic import symbols_of
from tenonnx.extend.transforms import between
from tenonnx_standard.control_flow import if_, loop, scan
from tenonnx_standard.grad import pullback
from tenonnx_standard.logic import greater
from tenonnx_standard.loop_factors import gathered
from tenonnx_standard.residuals import Demand, dependents
from tenonnx_standard.subgraphs import subgraph_types


def _is_float(kind: Type | None) -> bool:
    return isinstance(kind, TensorType) and kind.dtype.is_float


def _random(nodes: Sequence[Node]) -> list[Node]:
    """Nodes that are random, or have subgraphs that are."""
    return [node for node in nodes if not known_op(node).pure or any(_random(g.nodes) for g in node.subgraphs)]


# ----- If -------------------------------------------------------------------------------------------------------------


@if_.residuals
def if_residuals(demand: Demand, cond: Value, **branches: Graph) -> tuple[None, Demand]:
    return None, demand


@if_.vjp
def if_vjp(g: Any, demand: Demand, cond: Value, *, then_branch: Graph, else_branch: Graph) -> tuple[Value | None, ...]:
    cotangents = {k: v for k, v in enumerate(_tuple(g)) if v is not None}
    wrt = [k for k, v in enumerate(demand.captures) if v in demand.inputs]

    def back(branch: Graph) -> Graph:
        if random := _random(branch.nodes):
            raise NotDifferentiable(
                "If: a branch draws random numbers, and the backward pass computes it again",
                given=", ".join(node.title for node in random),
                do="draw the random numbers outside of the branch",
            )
        joint = pullback(branch, list(cotangents), wrt)
        part = between(joint, joint.all_inputs, joint.outputs[len(branch.outputs) :])
        return subgraph(lambda: inline(part, [*demand.captures, *cotangents.values()]), name=branch.name)

    gradients: dict[int, Value] = {}
    if wrt:
        found = _tuple(if_(cond, then_branch=back(then_branch), else_branch=back(else_branch)))
        gradients = dict(zip(wrt, found, strict=True))
    return (None, *(gradients.get(k) for k in range(len(demand.captures))))


# ----- loops: what is iterated ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Track:
    """Values of all iterations in one tensor: the axis along which they are stacked, and whether in reverse order."""

    value: Value
    axis: int = 0
    reversed: int = 0

    @property
    def is_plain(self) -> bool:
        """Whether iterations are stacked along the first axis in order."""
        return (self.axis, self.reversed) == (0, 0)


@dataclass(frozen=True, slots=True)
class Places:
    """The indices of carried values, captures and scanned inputs that take part in the gradient."""

    carried: Sequence[int]
    captured: Sequence[int]
    read: Sequence[int]

    def __iter__(self) -> Iterator[int]:
        yield from (*self.carried, *self.captured, *self.read)


@dataclass(frozen=True, slots=True)
class Iteration:
    """Common interface of the gradients of Scan and Loop.

    The body takes ``lead`` values, the carried values, and an element of each of ``inputs``. It returns ``conditions``
    values, the carried values, and elements of the stacked outputs. ``run`` applies the op with another body, and
    returns the carried values and a track for each stacked output. A *place* is an index into the initial values, the
    inputs and the captures.
    """

    title: str
    body: Graph
    initial: Sequence[Value]
    inputs: Sequence[Track]
    captures: Sequence[Value]
    run: Callable[[Graph], tuple[Sequence[Value], Sequence[Track]]]
    lead: int = 0
    conditions: int = 0

    def active(self, wanted: Collection[Value]) -> Places:
        """The places that ``wanted`` reaches, including through carried values."""
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
        return Places(
            [k for k in floats if k < before],
            [k for k in floats if k >= behind],
            [k for k in floats if before <= k < behind],
        )

    def check(self, place: int) -> None:
        """Raise for a carried value whose iterations cannot be stacked, since its shape changes."""
        kinds = [v.type for v in self.initial]
        copy = copy_graph(self.body)
        before = [v.type for v in copy.all_inputs]
        before[self.lead : self.lead + len(kinds)] = kinds
        after = subgraph_types(self.title, copy, before)[self.conditions + place]
        if not isinstance(after, TensorType) or _changes(after, kinds[place]):
            raise NotDifferentiable(
                f"{self.title}: a carried value with a gradient is not a tensor of fixed shape",
                given=f'"{self.initial[place].name}", {kinds[place]} before the first iteration and {after} after it',
                do="carry a tensor of fixed shape, or stack values as an output of the loop",
            )


def _changes(after: TensorType, before: Type | None) -> bool:
    """Whether two shapes differ, where both are known in the same symbols."""
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


# ----- loops: one iteration and its gradient --------------------------------------------------------------------------


class Joint:
    """A body together with its gradient.

    ``formals`` are the inputs of the body, ``outer`` its captures, ``cotangents`` those of the active carried values
    and of the ``stacked`` outputs, ``gradients`` those of the active places.
    """

    def __init__(self, loop: Iteration, places: Places, stacked: Sequence[int]) -> None:
        count, body = len(loop.initial), loop.body
        of = [loop.conditions + k for k in (*places.carried, *(count + k for k in stacked))]
        size, total = len(body.all_inputs), len(body.all_inputs) + len(loop.captures)
        pulled = pullback(body, of, [loop.lead + k for k in places])
        self.graph = gathered(pulled, pulled.all_inputs[total:])
        values, outputs = self.graph.all_inputs, self.graph.outputs
        self.formals, self.outer, self.cotangents = values[:size], values[size:total], values[total:]
        self.outputs, self.gradients = outputs[: len(body.outputs)], outputs[len(body.outputs) :]
        self.random = [v for n in self.graph.nodes if _random([n]) for v in n.outputs if v is not None]

    def stored(self) -> list[Value]:
        """Values that the forward pass stores per iteration for the backward pass; possibly none.

        Values that are the same in all iterations, or whose shape may vary, are recomputed instead.
        """
        varying = dependents(self.graph.nodes, [*self.formals, *self.random])
        forward = set(between(self.graph, (), self.outputs).nodes)
        needed, stored = set(self.gradients), []
        for node in reversed(self.graph.nodes):
            found = [v for v in node.outputs if v in needed]
            keeps = _random([node]) or (all(v in varying and _stackable(v) for v in found) and not _splits_last(node))
            if found and node in forward and keeps:
                stored += found
            elif found:
                needed.update(node.uses)
        return [v for v in self.graph.all_inputs if v in needed and v in varying] + stored

    def fixed(self) -> list[Value]:
        """Values of the backward pass that are the same in all iterations."""
        varying = dependents(self.graph.nodes, [*self.formals, *self.cotangents, *self.random])
        nodes = between(self.graph, (), self.gradients).nodes
        used = [v for node in nodes if any(v in varying for v in node.outputs) for v in node.uses]
        return [v for v in dict.fromkeys([*used, *self.gradients]) if v not in varying and v.producer is not None]


def _recorded(loop: Iteration, demand: Demand) -> tuple[Sequence[Value] | None, LoopResiduals | None]:
    """Run the loop with a body that also stacks what the backward pass reads; returns its outputs and the residuals."""
    count = len(loop.initial)
    places = loop.active(demand.inputs)
    stacked = [k for k, needed in enumerate(demand.outputs[count:]) if needed]
    if not (places.carried or stacked) or not any(True for _ in places):
        return None, None
    joint = Joint(loop, places, stacked)
    stored = joint.stored() or [joint.formals[-1 if loop.inputs else 0]]
    for k in range(count):
        if joint.formals[loop.lead + k] in stored:
            loop.check(k)
    read = dict(zip(joint.formals[loop.lead + count :], loop.inputs, strict=True))
    given = joint.outputs[loop.conditions + count :]
    fresh = [v for v in stored if v not in read and v not in given]
    part = between(joint.graph, joint.graph.all_inputs, [*joint.outputs, *fresh])
    finals, tracks = loop.run(
        subgraph(
            lambda *values: inline(part, [*values, *loop.captures]),
            [(v.name, v.type) for v in joint.formals],
            name=loop.body.name,
        )
    )
    read |= dict(zip([*given, *fresh], tracks, strict=True))
    way = LoopResiduals(loop, places, joint, [tracks[k] for k in stacked], stacked, stored, [read[v] for v in stored])
    return [*finals, *(track.value for track in tracks)], way


# ----- loops: from the last iteration to the first --------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class LoopResiduals:
    """Residuals of a loop: ``tracks`` contain the ``stored`` values of each iteration.

    ``output_tracks`` are those of the outputs ``stacked``; their cotangents are laid out alike.
    """

    loop: Iteration
    places: Places
    joint: Joint
    output_tracks: Sequence[Track]
    stacked: Sequence[int]
    stored: Sequence[Value]
    tracks: Sequence[Track]

    def gradients(self, g: Sequence[Value | None]) -> tuple[Value | None, ...]:
        """The gradients of initial values, inputs and captures, by a Scan that carries cotangents and sums."""
        loop, places, count = self.loop, self.places, len(self.loop.initial)
        outside = [*loop.initial, *(track.value for track in loop.inputs), *loop.captures]
        last = [ops.zeros_like(loop.initial[k]) if (v := g[k]) is None else v for k in places.carried]
        zeros = [ops.zeros_like(outside[k]) for k in places.captured]
        cotangents = [
            replace(track, value=ops.zeros_like(track.value) if (v := g[count + k]) is None else v)
            for k, track in zip(self.stacked, self.output_tracks, strict=True)
        ]

        def run() -> Sequence[Value]:
            return _BackwardScan(self.ahead(), last, zeros, cotangents).gradients()

        found = run() if loop.inputs else _tuple(_unless_empty(self.tracks[0].value, run, [*last, *zeros]))
        given = dict(zip(places, found, strict=True))
        for k in places.read:  # a Scan of length 0 has no dims that are not static
            given[k] = ops.reshape_like(given[k], outside[k])
        return tuple(given.get(k) for k in range(len(outside)))

    def ahead(self) -> LoopResiduals:
        """Compute elementwise functions of stored values for all iterations at once."""
        joint, tracks = self.joint, dict(zip(self.stored, self.tracks, strict=True))
        early = {value for value, track in tracks.items() if track.is_plain and value.rank is not None}
        nodes = between(joint.graph, [*joint.cotangents, *self.stored, *joint.outer], joint.gradients).nodes
        needed, computed = set(joint.gradients), []
        for node in nodes:
            results = [v for v in node.outputs if v is not None]
            if results and _is_early(node, results[0], early, joint.outer):
                early.update(results)
                computed += results
            else:
                needed.update(node.uses)
        computed = [value for value in computed if value in needed]
        part = between(joint.graph, [*self.stored, *joint.outer], computed)
        found = inline(part, [*(track.value for track in self.tracks), *self.loop.captures])
        tracks |= {value: Track(at_once) for value, at_once in zip(computed, found, strict=True) if at_once is not None}
        return replace(self, stored=list(tracks), tracks=list(tracks.values()))


def _splits_last(node: Node) -> bool:
    """Whether a node splits a value of known shape along a negative axis; the value is then stored unsplit."""
    of, axis = node.uses[0] if node.uses else None, node.attributes.get("axis", 0)
    return known_op(node) is ops.split and isinstance(axis, int) and axis < 0 and of is not None and _stackable(of)


def _is_early(node: Node, result: Value, early: Collection[Value], outer: Collection[Value]) -> bool:
    """Whether a node is elementwise on ``early`` values, with a result no larger than they are.

    Concat and Split along negative axes count too, since they work on all iterations at once.
    """
    varying = [v for v in node.uses if v.data is None and v not in outer]
    same = [v for v in node.uses if v.data is not None or v in outer]
    fit = all(v in early and v.rank == result.rank for v in varying)
    fit = fit and all(v.rank is not None and result.rank is not None and v.rank <= result.rank for v in same)
    if known_op(node) is ops.concat:
        return fit and not same and node.attributes["axis"] < 0
    if _splits_last(node):
        return fit and bool(varying)
    return fit and known_op(node).broadcasts and any(v.type == result.type for v in varying)


class _BackwardScan:
    """The Scan of the backward pass.

    The gradient of a capture is a sum over the iterations, which the Scan carries, starting from ``zeros``. Where each
    iteration adds a matrix product, the sum is a single product of the stacked matrices, after the Scan.
    """

    def __init__(
        self, way: LoopResiduals, last: Sequence[Value], zeros: Sequence[Value], cotangents: Sequence[Track]
    ) -> None:
        self.residuals, self.last, count = way, last, len(way.loop.initial)
        joint, states, sums = way.joint, len(last), len(last) + len(zeros)
        varying = dependents(joint.graph.nodes, [*way.stored, *joint.cotangents])
        #: Matrices whose product each iteration adds to the gradient of a capture, by place.
        self.products = {
            k: found for k, v in enumerate(joint.gradients[states:sums]) if (found := _factors(v, varying)) is not None
        }
        self.summed = [k for k in range(len(zeros)) if k not in self.products]
        self.zeros = [zeros[k] for k in self.summed]
        self.given = [
            *zip(joint.cotangents[states:], cotangents, strict=True),
            *zip(way.stored, way.tracks, strict=True),
        ]
        self.read = list(
            zip(joint.gradients[sums:], (way.loop.inputs[k - count] for k in way.places.read), strict=True)
        )
        values = {v for v, track in (*self.given, *self.read) if track.is_plain}
        factors = dict.fromkeys(v for pair in self.products.values() for v in pair)
        self.read += [(v, Track(v)) for v in factors if v not in values]
        carried = [*joint.gradients[:states], *(joint.gradients[states + k] for k in self.summed)]
        self.results = [*carried, *(v for v, _ in self.read)]

    def gradients(self) -> list[Value]:
        """The gradients of carried values, of captures, and of inputs."""
        joint = self.residuals.joint
        nodes = between(joint.graph, [*joint.cotangents, *self.residuals.stored, *joint.outer], self.results).nodes
        needed = {*self.results, *(v for node in nodes for v in node.uses)}
        given = [(v, track) for v, track in self.given if v in needed] or self.given[:1]
        found = _tuple(
            scan(
                *self.last,
                *self.zeros,
                *(track.value for _, track in given),
                body=self._step([v for v, _ in given]),
                num_scan_inputs=len(given),
                scan_input_axes=[track.axis for _, track in given],
                scan_input_directions=[1 - track.reversed for _, track in given],
                scan_output_axes=[track.axis for _, track in self.read],
                scan_output_directions=[1 - track.reversed for _, track in self.read],
            )
        )
        states, sums = len(self.last), len(self.last) + len(self.zeros)
        pairs = zip(self.read, found[sums:], strict=True)
        lying = {v: stacked for (v, track), stacked in pairs if track.is_plain}
        lying |= {v: track.value for v, track in self.given if track.is_plain}
        captured = dict(zip(self.summed, found[states:sums], strict=True))
        captured |= {k: _product(lying[a], lying[b]) for k, (a, b) in self.products.items()}
        inputs = found[sums : sums + len(self.residuals.places.read)]
        return [*found[:states], *(captured[k] for k in sorted(captured)), *inputs]

    def _step(self, given: Sequence[Value]) -> Graph:
        """One backward iteration: from cotangents, sums and stored values to cotangents, sums and gradients."""
        joint, captures = self.residuals.joint, self.residuals.loop.captures
        states, sums = len(self.last), len(self.last) + len(self.zeros)
        fixed = joint.fixed()
        contents = inline(between(joint.graph, joint.outer, fixed), captures)
        carried = joint.cotangents[:states]
        part = between(joint.graph, [*carried, *given, *joint.outer, *fixed], self.results)

        def step(*values: Value) -> list[Value]:
            found = inline(part, [*values[:states], *values[sums:], *captures, *contents])
            totals = [a + b for a, b in zip(values[states:sums], found[states:sums], strict=True)]
            return [*found[:states], *totals, *found[sums:]]

        kinds = [(f"back_{k}", v.type) for k, v in enumerate((*carried, *self.zeros, *given))]
        return subgraph(step, kinds, name=f"{self.residuals.loop.body.name}_back")


def _factors(value: Value, varying: Collection[Value]) -> tuple[Value, Value] | None:
    """``a`` and ``b`` if the value is the matrix product of ``a`` transposed and ``b``, both varying; else None."""
    node = value.producer
    if node is None or known_op(node) is not ops.matmul:
        return None
    turned, right = node.inputs
    if turned is None or right is None or turned.producer is None or known_op(turned.producer) is not ops.transpose:
        return None
    left = turned.producer.inputs[0]
    if left is None or not left.rank == right.rank == 2 or turned.producer.attributes.get("perm", [1, 0]) != [1, 0]:
        return None
    return (left, right) if left in varying and right in varying else None


def _product(left: Value, right: Value) -> Value:
    """The sum over the first axis of the products of transposed ``left`` and ``right`` matrices."""
    rows, columns = (ops.reshape(v, [-1, dims(v)[2]]) for v in (left, right))
    return ops.matmul(ops.transpose(rows, perm=[1, 0]), columns)


def _unless_empty(track: Value, run: Callable[[], Any], otherwise: Sequence[Value]) -> Any:
    """The result of ``run``, which reads ``track``; ``otherwise`` without iterations, which a Scan may refuse."""
    length = track.shape[0]
    if isinstance(length, int) and length > 0:
        return run()
    branches = {"then_branch": subgraph(run, name="back"), "else_branch": subgraph(lambda: otherwise, name="none")}
    return if_(greater(dims(track)[0], 0), **branches)


def _tuple(found: Any) -> tuple[Any, ...]:
    return tuple(found) if isinstance(found, tuple | list) else (found,)


# ----- the rules ------------------------------------------------------------------------------------------------------


@scan.residuals
def scan_residuals(demand: Demand, *inputs: Value, body: Graph, num_scan_inputs: int, **axes: Any) -> Any:
    states = len(inputs) - num_scan_inputs

    def along(values: Sequence[Value], side: str) -> list[Track]:
        """The tracks of inputs or outputs; added values are stacked along the first axis."""
        where, backward = (axes[f"scan_{side}_{what}"] or () for what in ("axes", "directions"))
        return [Track(v, *how) for v, *how in zip_longest(values, where, backward, fillvalue=0)]

    def run(wider: Graph) -> tuple[Sequence[Value], Sequence[Track]]:
        count = len(wider.outputs) - states
        longer = {n: [*a, *[0] * (count - len(a))] for n, a in axes.items() if a and n.startswith("scan_output_")}
        found = _tuple(scan(*inputs, body=wider, num_scan_inputs=num_scan_inputs, **axes | longer))
        return found[:states], along(found[states:], "output")

    return _recorded(
        Iteration("Scan", body, inputs[:states], along(inputs[states:], "input"), demand.captures, run), demand
    )


@loop.residuals
def loop_residuals(
    demand: Demand, M: Value | None, cond: Value | None, *v_initial: Value, body: Graph, _outputs: Any
) -> Any:
    def run(wider: Graph) -> tuple[Sequence[Value], Sequence[Track]]:
        found = _tuple(loop(M, cond, *v_initial, body=wider, _outputs=len(wider.outputs) - 1))
        return found[: len(v_initial)], [Track(v) for v in found[len(v_initial) :]]

    return _recorded(Iteration("Loop", body, v_initial, [], demand.captures, run, lead=2, conditions=1), demand)


@scan.vjp
def scan_vjp(g: Any, way: LoopResiduals | None, *inputs: Value, body: Graph, **_: Any) -> tuple[Value | None, ...]:
    return (None,) * (len(inputs) + len(body.captures)) if way is None else way.gradients(_tuple(g))


@loop.vjp
def loop_vjp(
    g: Any, way: LoopResiduals | None, M: Any, cond: Any, *v_initial: Value, body: Graph, _outputs: Any
) -> Any:
    result = (None,) * (len(v_initial) + len(body.captures)) if way is None else way.gradients(_tuple(g))
    return None, None, *result
