"""Pushing Transpose nodes through the graph until they cancel."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from tenonnx.extend import (
    Graph,
    NotRepresentable,
    Op,
    TenonnxError,
    TensorType,
    Value,
    find_rule,
    find_trait,
    operators,
    rule_kind,
)
from tenonnx.extend.transforms import Call, Rewriter, in_registry_of_graph, leaving_defaults, prune
from tenonnx_optimize.weights import keep_names, role_of_reshaped, role_of_transposed

MOVES = rule_kind("moves", "inputs and attributes; a value, and its axis for each axis of the result, or None")
PASSES = rule_kind("laid_out", "a layout, inputs and attributes; the results of the call on inputs in that layout")

#: For each axis of a tensor the axis of another one; None for an axis of one element that the other lacks.
Axes = tuple[int | None, ...]


class Laid(NamedTuple):
    """A tensor as a permutation of another one; omitted axes have one element."""

    value: Value
    axes: Axes

    @classmethod
    def of(cls, value: Value, axes: Sequence[int | None]) -> Laid:
        """Axes of ``value``; a new axis of one element can be any omitted axis."""
        spare = iter([axis for axis in range(value.ndim) if axis not in axes])
        return cls(value, tuple(next(spare, None) if axis is None else axis for axis in axes))

    @property
    def is_same(self) -> bool:
        return self.axes == tuple(range(self.value.ndim))


@leaving_defaults
@in_registry_of_graph
def channels_first(graph: Graph) -> Graph:
    """Remove the Transpose nodes around Conv and other channels-last code by computing in channels-first layout.

    Elementwise ops (trait ``elementwise``) and ops along named axes are applied to inputs in another layout by the rule
    ``laid_out``, which moves Transpose nodes (rule ``moves``) after them. Inputs and outputs keep their layout;
    ``tx.transpose_interface`` changes it. The graph is unchanged if nothing improves.
    """
    moved = prune(Rewriter(graph, _Pushing().decide).run())
    if _moves(moved) >= _moves(graph):
        return graph
    keep_names(moved)
    return moved


def _moves(graph: Graph) -> int:
    """The number of calls that move axes of computed values."""
    computed = (node for node in graph.walk() if not all(v is None or v.is_constant for v in node.inputs))
    return sum(isinstance(node.op, Op) and find_rule(node.op, MOVES.name) is not None for node in computed)


@dataclass
class _Pushing:
    """Decisions about the calls of one graph."""

    laid: dict[Value, Laid] = field(default_factory=dict)
    materialized: dict[Laid, Value] = field(default_factory=dict)

    def decide(self, rewriter: Rewriter, call: Call) -> Sequence[Value | None] | None:
        if call.node is None:
            return None
        for attempt in self._attempts(call):
            count = len(self.materialized)
            try:
                with rewriter.attempt():
                    found = attempt()
                    results = [self.materialize(each) for each in found]
                    if not _same_types(results, call):
                        raise NotRepresentable("a call on inputs of another layout returns another type")
            except TenonnxError:  # unknown types or shapes, or a tensor that would have to be moved
                while len(self.materialized) > count:
                    self.materialized.popitem()
                continue
            self.laid.update((v, each) for v, each in zip(results, found, strict=True) if v is not each.value)
            return results
        self._remember(rewriter, call)
        return None

    def _attempts(self, call: Call) -> Iterator[Callable[[], list[Laid]]]:
        layouts = {laid.axes: laid for v in call.inputs if v is not None and (laid := self.laid.get(v)) is not None}
        by_element = find_trait(call.op, "elementwise")
        passes = _by_element(call) if by_element else find_rule(call.op, PASSES.name)
        moves = find_rule(call.op, MOVES.name)
        for laid in layouts.values():
            if passes is not None:
                yield functools.partial(self._passed, passes, PushedLayout(self, laid), call)
            if moves is not None:
                yield lambda: [self._rebased(_as_moved(moves, call))]
        if layouts and by_element:
            yield lambda: [self._broadcast(call)]

    def _broadcast(self, call: Call) -> Laid:
        """Elementwise call on inputs without the leading axes that broadcasting adds."""
        inputs = [v if v is None else self._without_front(v) for v in call.inputs]
        if inputs == list(call.inputs):
            raise NotRepresentable("no input has leading axes to drop")
        value = call.op(*inputs, **call.attributes)
        return Laid(value, tuple(range(value.ndim)))

    def _without_front(self, value: Value) -> Value:
        laid = self.laid.get(value)
        is_grown = laid is not None and laid.axes == (*[None] * (value.ndim - laid.value.ndim), *range(laid.value.ndim))
        return laid.value if laid is not None and is_grown else value

    def _remember(self, rewriter: Rewriter, call: Call) -> None:
        """Record the results of a call that is kept and whose inputs were not moved."""
        moves = find_rule(call.op, MOVES.name)
        output = None if call.node is None else call.node.outputs[0]
        if moves is None or output is None or any(v in self.laid for v in call.inputs):
            return
        with contextlib.suppress(TenonnxError), rewriter.attempt():
            found = _as_moved(moves, call)
            if not found.value.is_constant:
                self.laid[rewriter.copy(output)] = found
                self.materialized[found] = rewriter.copy(output)

    def _passed(self, passes: Any, layout: PushedLayout, call: Call) -> list[Laid]:
        results = _given(passes(layout, *call.inputs, **call.attributes))
        several = results if isinstance(results, tuple) and not isinstance(results, Laid) else (results,)
        return [each if isinstance(each, Laid) else Laid(each, layout.axes) for each in several]

    def _rebased(self, given: Laid) -> Laid:
        """The tensor expressed as a permutation of an unmoved tensor."""
        below = self.laid.get(given.value)
        if below is None:
            return given
        return Laid.of(below.value, [None if axis is None else below.axes[axis] for axis in given.axes])

    def materialize(self, laid: Laid) -> Value:
        """Materialize the tensor with as few calls as possible."""
        if laid.is_same:
            return laid.value
        if laid not in self.materialized:
            self.materialized[laid] = _moved(laid)
        return self.materialized[laid]


def _moved(laid: Laid) -> Value:
    value, axes = laid
    source = value
    spare = [axis for axis in range(value.ndim) if axis not in axes]
    kept = [axis for axis in axes if axis is not None]
    order = sorted([*kept, *spare]) if kept == sorted(kept) else [*kept, *spare]
    if order != sorted(order):
        value = operators().transpose(value, order)
    if spare:
        value = operators().getitem(value, tuple(0 if axis in spare else slice(None) for axis in order))
    if None in axes:
        value = operators().getitem(value, tuple(None if axis is None else slice(None) for axis in axes))
    if value.is_constant and _is_weight(source):
        value.role = role_of_reshaped(source) if spare or None in axes else role_of_transposed(source, order)
    return value


def _is_weight(value: Value) -> bool:
    named = value.role is not None and value.role.name
    return bool(named or (value.graph is not None and value in value.graph.variables))


@dataclass(frozen=True)
class PushedLayout:
    """The unmoved inputs of a call, for a rule ``laid_out``."""

    pushing: _Pushing
    reference: Laid

    @property
    def axes(self) -> Axes:
        return self.reference.axes

    def axis(self, axis: int) -> int:
        """Position of an axis in the unmoved input. Raises ``NotRepresentable`` for an axis that was not moved."""
        result = self.axes[axis]
        if result is None:
            raise NotRepresentable("an axis lies outside the moved axes", given=str(axis))
        return result

    def placed(self, value: Value, axes: Sequence[int | None]) -> Laid:
        """A result in another layout than the inputs."""
        return Laid.of(value, axes)

    def of(self, value: Value | None) -> Value | None:
        """The unmoved version of an input; raises ``NotRepresentable`` if there is none."""
        if value is None:
            return None
        laid = self.pushing.laid.get(value, Laid(value, tuple(range(value.ndim))))
        if laid.axes == self.axes and laid.value.ndim == self.reference.value.ndim:
            return laid.value
        before = len(self.axes) - value.ndim
        long = [before + axis for axis, dim in enumerate(value.shape) if dim != 1]
        if before < 0 or any(self.axes[axis] is None for axis in long):
            raise NotRepresentable("an input does not broadcast to the moved axes", given=str(value.type))
        places = {self.axes[axis]: laid.axes[axis - before] for axis in long}
        first = min((axis for axis in places if axis is not None), default=self.reference.value.ndim)
        wanted = Laid.of(laid.value, [places.get(axis) for axis in range(first, self.reference.value.ndim)])
        if len(long) > 1 and not value.is_constant and wanted not in self.pushing.materialized and not wanted.is_same:
            raise NotRepresentable("layout of an input differs from that of the moved one", given=str(value.type))
        return self.pushing.materialize(wanted)


def _as_moved(moves: Callable[..., Any], call: Call) -> Laid:
    value, axes = _given(moves(*call.inputs, **call.attributes))
    return Laid.of(value, axes)


def _by_element(call: Call) -> Any:
    return lambda layout, *inputs, **attributes: call.op(*map(layout.of, inputs), **attributes)


def _given(found: Any) -> Any:
    if found is None:
        raise NotRepresentable("a call neither moves axes nor passes them on")
    return found


def _same_types(results: Sequence[Value], call: Call) -> bool:
    known = [None if each is None else each.type for each in call.known]
    return len(results) == len(known) and all(
        isinstance(kind, TensorType) and isinstance(value.type, TensorType) and value.type.shape == kind.shape
        for value, kind in zip(results, known, strict=True)
    )
