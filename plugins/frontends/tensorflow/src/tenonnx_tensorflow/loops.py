"""Loops and branches over tracked values: tensors, complex numbers, lists and variables."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

import tenonnx_standard as ops
from tenonnx.extend import DType, NotRepresentable, TensorType, Value, constant, join_types, static, subgraph
from tenonnx_tensorflow.recurrent import Loop, recognized
from tenonnx_tensorflow.state import State
from tenonnx_tensorflow.tracked_values import Complex, Held, Table, TensorList, Variable, int64, scalar

#: Maximum number of rounds in which types of carried values are widened.
_ROUNDS = 4


class RowsApart(NotRepresentable):
    """A loop does more with a list than writing its rows in order, so that it has to carry the list."""


@dataclass(eq=False)
class Slot:
    """A list that a loop fills with one row per iteration, and the row of this iteration."""

    source: TensorList
    place: Value | None = None
    row: Value | None = None


def tensors_of(content: Held, what: str) -> list[Value]:
    """The tensors that represent a tracked value."""
    if isinstance(content, Value):
        return [content]
    if isinstance(content, Complex):
        return [content.real, content.imaginary]
    if isinstance(content, TensorList):
        if content.rows is None:
            raise NotRepresentable("a list leaves a loop or branch before it is filled", given=what)
        return [content.rows]
    if isinstance(content, Variable | Table) or content is None:
        return []
    raise RowsApart("a loop or branch returns something other than tensors and lists of them", given=what)


def like(template: Held, values: Sequence[Value]) -> Held:
    """Inverse of ``tensors_of``: a tracked value like ``template``, from other tensors."""
    if isinstance(template, Value):
        return values[0]
    if isinstance(template, Complex):
        return Complex(*values)
    if isinstance(template, TensorList):
        return TensorList(template.dtype, values[0], template.size, template.shape)
    return template


def together(templates: Sequence[Held], values: Sequence[Value]) -> list[Held]:
    rest = list(values)
    result = []
    for template in templates:
        count = len(tensors_of(template, "a value"))
        result.append(like(template, rest[:count]))
        rest = rest[count:]
    return result


def flat(contents: Sequence[Held], what: str) -> list[Value]:
    return [value for each in contents for value in tensors_of(each, what)]


# ----- branches -------------------------------------------------------------------------------------------------------


def branched(
    state: State, condition: Value, then: Callable[[], Sequence[Held]], other: Callable[[], Sequence[Held]], what: str
) -> list[Held]:
    """Result of one of two functions; variables that either of them changes become outputs of the branch."""
    contents = static(condition)
    if contents is not None:
        return list(then() if bool(np.asarray(contents).reshape(-1)[0]) else other())
    before = dict(state.contents)
    templates: list[list[Held]] = []
    changed: dict[Variable, None] = {}

    def tried(function: Callable[[], Sequence[Held]]) -> None:
        def run() -> list[Value]:
            found = list(function())
            templates.append(found)
            changed.update(dict.fromkeys(state.changes_since(before)))
            return [ops.identity(v) for v in flat(found, what)] or [constant(np.asarray(True))]

        subgraph(run, name="branch")
        state.undo(before)

    tried(then)
    tried(other)
    if len(templates[0]) != len(templates[1]):
        raise NotRepresentable("two branches return different numbers of values", given=what)
    variables = list(changed)

    def branch(function: Callable[[], Sequence[Held]]) -> Any:
        def run() -> list[Value]:
            found = [*function(), *(state.read(v) for v in variables)]
            return [ops.identity(v) for v in flat(found, what)] or [constant(np.asarray(True))]

        graph = subgraph(run, name="branch")
        state.undo(before)
        return graph

    results = ops.if_(scalar(condition), then_branch=branch(then), else_branch=branch(other))
    values = list(results) if isinstance(results, tuple) else [results]
    merged = [_either(a, b) for a, b in zip(*templates, strict=True)]
    found = together([*merged, *(state.read(v) for v in variables)], values)
    for variable, content in zip(variables, found[len(merged) :], strict=True):
        state.assign(variable, content)
    return found[: len(merged)]


def _either(a: Held, b: Held) -> Held:
    """Common form of two alternatives; a list keeps its size only if both have the same."""
    if isinstance(a, TensorList) and isinstance(b, TensorList):
        return TensorList(a.dtype, a.rows, a.size if a.size is b.size else None, a.shape)
    return a


# ----- loops ----------------------------------------------------------------------------------------------------------


@dataclass
class _Trace:
    """Results of tracing a body once."""

    formals: list[Value] = field(default_factory=list)
    results: list[Held] = field(default_factory=list)
    going: Value | None = None
    changed: dict[Variable, None] = field(default_factory=dict)


@dataclass(frozen=True)
class Looping:
    """A loop of TensorFlow: initial values, condition and body.

    ``fixed`` values never change and are captured.
    """

    state: State
    initial: Sequence[Held]
    condition: Callable[[Sequence[Held]], Value]
    body: Callable[[Sequence[Held]], Sequence[Held]]
    fixed: Sequence[bool]
    title: str

    @property
    def changing(self) -> list[int]:
        return [k for k, is_fixed in enumerate(self.fixed) if not is_fixed]


def looped(loop: Looping) -> list[Held]:
    """Final values of the variables of a loop.

    A list that is reserved before and gets one row per iteration becomes a scan output. Other lists are carried as
    tensors, initially zeros, which requires static sizes of rows.
    """
    if any(isinstance(loop.initial[k], Slot) for k in loop.changing):
        raise RowsApart("a loop inside of a loop writes the rows of its list", given=loop.title)
    before = dict(loop.state.contents)
    try:
        return _looped(loop)
    except RowsApart:
        whole = [_zeros(h) if isinstance(h, TensorList) and h.rows is None else h for h in loop.initial]
        if any(h is None for h in whole) or all(a is b for a, b in zip(whole, loop.initial, strict=True)):
            raise
        loop.state.undo(before)
        return _looped(replace(loop, initial=whole))


def _zeros(tensor_list: TensorList) -> TensorList | None:
    """A list of zeros of the reserved size; None where the shape of rows is unknown."""
    if (
        tensor_list.shape is None
        or any(not isinstance(n, int) for n in tensor_list.shape)
        or tensor_list.dtype is DType.string
    ):
        return None
    sizes = ops.concat(
        ops.reshape(int64(tensor_list.size), [1]), constant(np.asarray(tensor_list.shape, np.int64)), axis=0
    )
    rows = ops.expand(constant(np.zeros((), tensor_list.dtype.numpy)), sizes)
    return TensorList(tensor_list.dtype, rows, tensor_list.size, tensor_list.shape)


def _looped(loop: Looping) -> list[Held]:
    state, initial, what = loop.state, loop.initial, loop.title
    before = dict(state.contents)
    templates = list(initial)
    for k in loop.changing:
        initial_state = initial[k]
        templates[k] = (
            Slot(initial_state)
            if isinstance(initial_state, TensorList) and initial_state.rows is None
            else initial_state
        )
    slots = [k for k, each in enumerate(templates) if isinstance(each, Slot)]
    carried = [k for k in loop.changing if k not in slots]
    variables: list[Variable] = []
    starts = flat([templates[k] for k in carried], what)
    kinds = [v.type for v in starts]

    traced = _Tracing(loop, templates, carried, slots)
    for _ in range(_ROUNDS):
        all_starts = [*starts, *flat([state.read(v) for v in variables], what)]
        all_kinds = [*kinds, *(v.type for v in all_starts[len(kinds) :])]
        trace, made = traced(all_kinds, variables)
        state.undo(before)
        fresh = [v for v in trace.changed if v not in variables]
        given_back = [v.type for v in made.outputs[1 : 1 + len(all_kinds)]]
        wider = [_joined(a, b, what) for a, b in zip(all_kinds, given_back, strict=True)]
        if not fresh and wider == all_kinds:
            break
        variables += fresh
        kinds = wider[: len(starts)]
    else:
        raise NotRepresentable("a loop-carried value changes its type", given=what)

    count = _trip_count(trace, initial)
    if count is not None:
        trace, made = traced(all_kinds, variables, counted=True)
        state.undo(before)
    start = None if count is not None else scalar(loop.condition(list(initial)))
    results = ops.loop(count, start, *all_starts, body=made)
    values = list(results) if isinstance(results, tuple) else [results]
    if count is not None and len(slots) <= 1:
        layer = recognized(Loop(made, values[0].producer, count))
        if layer is not None:
            values = [layer[0].get(k, value) for k, value in enumerate(values)]
            values[len(all_starts) :] = [layer[1]] * len(slots)
    found = together([*(templates[k] for k in carried), *(state.read(v) for v in variables)], values)
    for variable, content in zip(variables, found[len(carried) :], strict=True):
        state.assign(variable, content)
    left: list[Held] = list(initial)
    for k, each in zip(carried, found, strict=False):
        left[k] = _list_again(each, trace.results[k])
    for k, rows in zip(slots, values[len(all_starts) :], strict=True):
        left[k] = _stacked(rows, trace, k, initial, count, what)
    return left


@dataclass(frozen=True)
class _Tracing:
    """Traces the body of a loop for types of carried values; ``counted``: the loop has no condition."""

    loop: Looping
    templates: Sequence[Held]
    carried: Sequence[int]
    slots: Sequence[int]

    def __call__(
        self, kinds: Sequence[Any], variables: Sequence[Variable], counted: bool = False
    ) -> tuple[_Trace, Any]:
        trace, loop, state = _Trace(), self.loop, self.loop.state

        def step(count: Value, going: Value, *values: Value) -> list[Value]:
            states = list(self.templates)
            templates = [*(states[k] for k in self.carried), *(state.read(v) for v in variables)]
            given = together(templates, values)
            for k, each in zip(self.carried, given, strict=False):
                states[k] = each
            for k in self.slots:
                states[k] = Slot(states[k].source)
            trace.formals = [h if isinstance(h, Value) else count for h in states]
            for variable, each in zip(variables, given[len(self.carried) :], strict=True):
                state.assign(variable, each)
            inside = dict(state.contents)
            trace.results = list(loop.body(states))
            trace.changed = dict.fromkeys(state.changes_since(inside))
            after = [states[k] if f else trace.results[k] for k, f in enumerate(loop.fixed)]
            trace.going = constant(np.asarray(True)) if counted else scalar(loop.condition(after))
            left = [trace.results[k] for k in self.carried]
            rows = [_row(trace.results[k], self.templates[k].source, loop.title) for k in self.slots]
            values_left = flat([*left, *(state.read(v) for v in variables)], loop.title)
            return [ops.identity(v) for v in (trace.going, *values_left, *rows)]

        formals = [("step", TensorType(DType.int64, ())), ("going", TensorType(DType.bool, ()))]
        return trace, subgraph(step, [*formals, *((f"state_{k}", kind) for k, kind in enumerate(kinds))])


def _joined(a: Any, b: Any, what: str) -> Any:
    """The common type of two alternatives, with differing sizes unknown."""
    result = join_types(a, b) if a is not None and b is not None else None
    if result is None:
        raise NotRepresentable("a loop-carried value changes its element type", given=f"{what}: {a} and {b}")
    return result


def _row(content: Held, source: TensorList, what: str) -> Value:
    if not isinstance(content, Slot) or content.row is None:
        raise RowsApart(
            "a loop does not write one row of an empty list in each iteration",
            given=what,
            do="use tf.TensorArray with index i in iteration i, or stack a Python list where the loop is unrolled",
        )
    return content.row


def _list_again(content: Held, inner: Held) -> Held:
    if isinstance(content, TensorList) and isinstance(inner, TensorList):
        content.size = None  # the loop may have extended it
    return content


def _stacked(rows: Value, trace: _Trace, position: int, initial: Sequence[Held], count: Any, what: str) -> TensorList:
    """The rows of a list, padded by zeros where a loop ends early; they must be written in order."""
    source, slot = initial[position], trace.results[position]
    assert isinstance(source, TensorList)
    assert isinstance(slot, Slot)
    if slot.place is None:  # pushed at the end, which is only possible from an empty list
        return TensorList(source.dtype, rows, None, source.shape)
    place = static(slot.place)
    if place is not None:
        return _overwritten(rows, source, int(np.asarray(place).reshape(-1)[0]))
    index = next((k for k, formal in enumerate(trace.formals) if formal is slot.place), None)
    if index is None or not _counts_up(trace, index, initial):
        raise RowsApart(
            "a loop does not write the rows of a list one after the other, and their sizes are not known",
            given=what,
            do="give element_shape to the tf.TensorArray",
        )
    if source.size is not None and (count is None or not _same(count, source.size)):
        missing = ops.sub(ops.reshape(int64(source.size), [1]), ops.slice_(ops.shape(rows), [0], [1], [0]))
        missing = ops.maximum(missing, constant(np.asarray([0])))  # a list may exceed its reserved size
        rest = [constant(np.zeros(rows.ndim - 1, np.int64))] if rows.ndim > 1 else []
        rows = ops.pad(rows, ops.concat(constant(np.zeros(rows.ndim, np.int64)), missing, *rest, axis=0))
    return TensorList(source.dtype, rows, source.size, source.shape)


def _overwritten(rows: Value, source: TensorList, place: int) -> TensorList:
    """A list in which every iteration overwrites the same row: keeps the last row."""
    last = ops.slice_(rows, [-1], [np.iinfo(np.int64).max], [0])
    size = static(source.size)
    if size is None or int(np.asarray(size)) != 1 or place:
        begin = np.zeros(rows.ndim, np.int64)
        begin[0] = place
        behind = ops.sub(ops.reshape(int64(source.size), [1]), constant(np.asarray([place + 1])))
        behind = ops.maximum(behind, constant(np.asarray([0])))
        rest = [constant(np.zeros(rows.ndim - 1, np.int64))] if rows.ndim > 1 else []
        last = ops.pad(last, ops.concat(constant(begin), behind, *rest, axis=0))
    return TensorList(source.dtype, last, source.size, source.shape)


def _counts_up(trace: _Trace, index: int, initial: Sequence[Held]) -> bool:
    """Whether a carried value is the iteration number."""
    start = static(initial[index]) if isinstance(initial[index], Value) else None
    after = trace.results[index]
    producer = after.producer if isinstance(after, Value) else None
    if start is None or int(np.asarray(start).reshape(-1)[0]) or producer is None or producer.op_type != "Add":
        return False
    formal = trace.formals[index]
    others = [v for v in producer.inputs if v is not formal]
    return len(others) == 1 and others[0] is not None and _equals(others[0], 1)


def _equals(value: Value, content: int) -> bool:
    found = static(value)
    return found is not None and np.size(found) == 1 and int(np.asarray(found).reshape(-1)[0]) == content


def _trip_count(trace: _Trace, initial: Sequence[Held]) -> Value | None:
    """Number of iterations of a loop whose condition compares its counter with upper bounds."""
    bounds = _bounds(trace.going, trace, initial)
    if not bounds:
        return None
    known = [static(bound) for bound in bounds]
    if all(n is not None for n in known):
        return constant(np.asarray(max(0, min(int(np.asarray(n)) for n in known))))
    outer = [h.size for h in initial if isinstance(h, TensorList) and h.size is not None]
    outer += [h for h in initial if isinstance(h, Value) and h.dtype in (DType.int32, DType.int64) and h.rank == 0]
    for candidate in outer:
        if all(_same(bound, candidate) for bound in bounds):
            return int64(candidate)
    return None


def _bounds(going: Value | None, trace: _Trace, initial: Sequence[Held]) -> list[Value]:
    """The upper bounds of counters in a conjunction; empty for any other condition."""
    producer = going.producer if going is not None else None
    if producer is None:
        return []
    if producer.op_type in ("Identity", "Reshape"):
        return _bounds(producer.inputs[0], trace, initial)
    if producer.op_type == "And":
        parts = [_bounds(each, trace, initial) for each in producer.inputs]
        return [bound for part in parts for bound in part] if all(parts) else []
    if producer.op_type != "Less":
        return []
    counter, bound = producer.inputs
    for k, result in enumerate(trace.results):
        if result is counter and bound is not None and _counts_up(trace, k, initial):
            return [bound]
    return []


def _same(a: Value, b: Value) -> bool:
    contents = [static(v) if static(v) is not None else v.symbolic_contents for v in (a, b)]
    if any(c is None or np.size(c) != 1 for c in contents):
        return a is b
    first, second = (np.asarray(c).reshape(-1)[0] for c in contents)
    return bool(first == second)
