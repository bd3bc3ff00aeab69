"""Control flow: branches and loops over subgraphs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import tenonnx_standard as ops
from tenonnx.extend import (
    DType,
    Graph,
    Index,
    Known,
    OptionalType,
    SequenceType,
    TensorType,
    Type,
    TypeMismatch,
    Value,
    constant,
    counted,
    dims,
    holds,
    inline,
    join_types,
    limits,
    primitive,
    shapes,
    static,
    subgraph,
)
from tenonnx_standard.subgraphs import subgraph_types

#: A subgraph as numpy rules call it.
Function = Callable[..., tuple[Any, ...]]


# ----- If -------------------------------------------------------------------------------------------------------------


def _if_type(cond: Value, *, then_branch: Graph, else_branch: Graph) -> tuple[Type | Known | None, ...]:
    if cond.dtype is not DType.bool:
        raise TypeMismatch("If: the condition is not a bool", given=repr(cond))
    branches = [subgraph_types("If", graph, []) for graph in (then_branch, else_branch)]
    if len(branches[0]) != len(branches[1]):
        counts = f"{len(branches[0])} and {len(branches[1])}"
        raise TypeMismatch("If: the branches have different numbers of outputs", given=counts)
    contents = static(cond)
    if contents is not None and contents.size == 1:
        taken = then_branch if contents.reshape(()) else else_branch
        if all(value.type is not None for value in taken.outputs):
            return tuple(Known(value.type, value.symbolic_contents, value.data) for value in taken.outputs)
    return tuple(_either(a, b) for a, b in zip(*branches, strict=True))


def _either(a: Type | None, b: Type | None) -> Type | None:
    """The type of a value from either of two branches; one branch may return an optional without it."""
    joined = join_types(a, b)
    if joined is None and isinstance(a, OptionalType) != isinstance(b, OptionalType):
        optional, plain = (a, b) if isinstance(a, OptionalType) else (b, a)
        return (
            OptionalType(join_types(optional.element, plain) or plain) if isinstance(optional, OptionalType) else None
        )
    return joined


@primitive("If", since=1, type=_if_type)
def if_(cond, *, then_branch: Graph, else_branch: Graph):
    """The outputs of one of two subgraphs."""


@if_.numpy
def if_numpy(cond: Any, *, then_branch: Function, else_branch: Function) -> tuple[Any, ...]:
    return then_branch() if bool(np.reshape(cond, -1)[0]) else else_branch()


# ----- Loop -----------------------------------------------------------------------------------------------------------


def _carried_types(
    title: str,
    body: Graph,
    before: Sequence[Type | None],
    initial: Sequence[Type | None],
    after: Sequence[Type | None] = (),
    *,
    conditions: int = 0,
) -> tuple[list[Type | None], list[Type | None]]:
    """Types of the carried values, general enough for all iterations, and of the body's other outputs.

    The body takes the values ``before``, the carried values and the values ``after``. It returns ``conditions``, the
    carried values and the rest.
    """
    carried = list(initial)
    end = conditions + len(carried)
    while True:
        found = subgraph_types(title, body, [*before, *carried, *after])
        if len(found) < end:
            raise TypeMismatch(
                f"{title}: body does not return {conditions} conditions and {len(carried)} carried values",
                given=counted(len(found), "output"),
            )
        wider = [_widened(a, b) for a, b in zip(carried, found[conditions:end], strict=True)]
        if wider == carried:
            return carried, found[end:]
        carried = wider


def inserted(kind: Type | None, axis: int, length: Any) -> TensorType | None:
    """The type of scan outputs stacked along a new axis."""
    if not isinstance(kind, TensorType):
        return None
    if kind.shape is None:
        return TensorType(kind.dtype)
    dims = list(kind.shape)
    dims.insert(axis % (len(dims) + 1), length)
    return TensorType(kind.dtype, tuple(dims))


def _widened(a: Type | None, b: Type | None) -> Type | None:
    if a is None or b is None:
        return a
    joined = join_types(a, b)
    if joined is None and isinstance(a, TensorType) and isinstance(b, TensorType) and a.dtype != b.dtype:
        raise TypeMismatch("a loop-carried value changes its dtype", given=f"{a} before, {b} after")
    if isinstance(a, SequenceType) and joined is None:
        return a if a.element is not None else b
    return joined if joined is not None else a


def _loop_type(
    M: Value | None, cond: Value | None, *v_initial: Value, body: Graph, _outputs: int | None
) -> tuple[Type | None, ...]:
    shapes = [counter_shape(value) for value in body.inputs[:2]]
    before = [TensorType(dtype, dims) for dtype, dims in zip((DType.int64, DType.bool), shapes, strict=False)]
    carried, rest = _carried_types("Loop", body, before, [v.type for v in v_initial], conditions=1)
    count, limit = None, static(M)
    if limit is not None and cond is None and _is_unconditional(body):
        count = max(int(np.reshape(limit, -1)[0]), 0)
    return (*carried, *(inserted(kind, 0, count) for kind in rest))


def counter_shape(value: Value) -> tuple[int, ...]:
    """The shape in which a body takes the iteration number or the condition.

    ONNX has scalars there; onnxruntime passes one element of rank 1 if the body declares its input so.
    """
    return (1,) if value.rank == 1 else ()


def _is_unconditional(body: Graph) -> bool:
    going_on = body.outputs[0]
    contents = static(going_on)
    return contents is not None and bool(contents)


@primitive("Loop", since=1, type=_loop_type)
def loop(M: Index = None, cond=None, *v_initial, body: Graph, _outputs=None):
    """Run ``body`` at most ``M`` times, while its first output is true; stack its scan outputs."""


@loop.numpy
def loop_numpy(M: Any, cond: Any, *v_initial: Any, body: Any, _outputs: int | None) -> tuple[Any, ...]:
    carried = list(v_initial)
    scanned: list[list[Any]] = [[] for _ in range(len(body.graph.outputs) - 1 - len(carried))]
    limit = None if M is None else int(np.reshape(M, -1)[0])
    going_on = cond is None or bool(np.reshape(cond, -1)[0])
    counter, condition = (counter_shape(value) for value in body.graph.inputs[:2])
    iteration = 0
    while going_on and (limit is None or iteration < limit):
        found = body(np.full(counter, iteration, np.int64), np.full(condition, going_on), *carried)
        going_on = bool(np.reshape(found[0], -1)[0])
        carried = list(found[1 : 1 + len(carried)])
        limits.count_allocated(sum([_counted(each) for each in found[1:]]))
        for stack, each in zip(scanned, found[1 + len(carried) :], strict=True):
            stack.append(each)
        iteration += 1
    kinds = [value.type for value in body.graph.outputs[1 + len(carried) :]]
    return (*carried, *(_stack(stack, kind) for stack, kind in zip(scanned, kinds, strict=True)))


def _counted(contents: Any) -> int:
    """Estimated bytes of an iteration's output; a sequence is counted when it grows."""
    return int(getattr(contents, "nbytes", 0)) + limits.TEXT


def _stack(arrays: Sequence[Any], kind: Type | None, axis: int = 0) -> Any:
    """The arrays stacked along a new axis; without any, an empty array of the type ``kind``."""
    shapes = dict.fromkeys(a.shape for a in arrays)
    if len(shapes) > 1:
        given = " and ".join(str(list(shape)) for shape in shapes)
        raise TypeMismatch("shape of a scan output differs between iterations", given=given)
    if arrays:
        limits.check_elements((len(arrays), arrays[0].size), "a scan output of a loop")
        limits.check_memory(len(arrays) * arrays[0].nbytes, "a scan output of a loop")
        return np.stack(arrays, axis=axis)
    if not isinstance(kind, TensorType):
        return np.zeros((0,), np.float32)
    dims = [dim if isinstance(dim, int) else 0 for dim in kind.shape or ()]
    dims.insert(axis % (len(dims) + 1), 0)
    return np.zeros(dims, kind.dtype.numpy)


# ----- Scan -----------------------------------------------------------------------------------------------------------


def _states(inputs: Sequence[Any], num_scan_inputs: int) -> int:
    """Number of carried inputs. Raises ``TypeMismatch`` if there are fewer inputs than scanned ones."""
    if not 1 <= num_scan_inputs <= len(inputs):
        raise TypeMismatch(
            "Scan: num_scan_inputs lies outside 1 to the number of inputs",
            given=f"num_scan_inputs={num_scan_inputs} of {counted(len(inputs), 'input')}",
        )
    return len(inputs) - num_scan_inputs


def _axes(given: Sequence[int] | None, count: int) -> list[int]:
    return [0] * count if given is None else list(given)


def _without(kind: Type | None, axis: int) -> TensorType | None:
    if not isinstance(kind, TensorType):
        return None
    if kind.shape is None:
        return TensorType(kind.dtype)
    if not kind.shape:
        raise TypeMismatch("Scan: an input has no axis to take slices along", given=str(kind))
    position = axis % len(kind.shape)
    return TensorType(kind.dtype, (*kind.shape[:position], *kind.shape[position + 1 :]))


def _scan_type(
    *initial_state_and_scan_inputs: Value, body: Graph, num_scan_inputs: int, **axes: Any
) -> tuple[Any, ...]:
    states = _states(initial_state_and_scan_inputs, num_scan_inputs)
    scanned = initial_state_and_scan_inputs[states:]
    where = _axes(axes["scan_input_axes"], num_scan_inputs)
    elements = [_without(v.type, axis) for v, axis in zip(scanned, where, strict=True)]
    initial = [v.type for v in initial_state_and_scan_inputs[:states]]
    carried, rest = _carried_types("Scan", body, [], initial, elements)
    length = _common_length([v.shape[a] for v, a in zip(scanned, where, strict=True) if v.rank is not None])
    outputs = _axes(axes["scan_output_axes"], len(rest))
    return (*carried, *(inserted(kind, axis, length) for kind, axis in zip(rest, outputs, strict=True)))


def _common_length(lengths: Sequence[Any]) -> Any:
    """The length shared by all scanned inputs, static if one is. Raises ``TypeMismatch`` if they differ."""
    known = dict.fromkeys(each for each in lengths if isinstance(each, int))
    if len(known) > 1:
        raise TypeMismatch("Scan: the scanned inputs differ in length", given=" and ".join(map(str, known)))
    return next(iter(known), next(iter(lengths), None))


@primitive("Scan", since=8, type=_scan_type)
def scan(
    *initial_state_and_scan_inputs,
    body: Graph,
    num_scan_inputs: int,
    scan_input_axes: list[int] | None = None,
    scan_input_directions: list[int] | None = None,
    scan_output_axes: list[int] | None = None,
    scan_output_directions: list[int] | None = None,
):
    """Run ``body`` over slices of the last ``num_scan_inputs`` inputs, carrying the first ones as state."""


@scan.numpy
def _scan(*inputs: Any, body: Any, num_scan_inputs: int, **attributes: Any) -> tuple[Any, ...]:
    states = _states(inputs, num_scan_inputs)
    where = _axes(attributes["scan_input_axes"], num_scan_inputs)
    backward = _axes(attributes["scan_input_directions"], num_scan_inputs)
    slices = [np.moveaxis(x, axis, 0) for x, axis in zip(inputs[states:], where, strict=True)]
    slices = [x[::-1] if reverse else x for x, reverse in zip(slices, backward, strict=True)]
    carried, scanned = list(inputs[:states]), [[] for _ in range(len(body.graph.outputs) - states)]
    for step in range(_common_length([len(x) for x in slices])):
        found = body(*carried, *(x[step, ...] for x in slices))  # an array, of strings too
        carried = list(found[:states])
        limits.count_allocated(sum([_counted(each) for each in found]))
        for stack, each in zip(scanned, found[states:], strict=True):
            stack.append(each)
    kinds = [value.type for value in body.graph.outputs[states:]]
    axes = _axes(attributes["scan_output_axes"], len(scanned))
    reverses = _axes(attributes["scan_output_directions"], len(scanned))
    stacked = [
        _stack(stack[::-1] if reverse else stack, kind, axis)
        for stack, kind, axis, reverse in zip(scanned, kinds, axes, reverses, strict=True)
    ]
    return (*carried, *stacked)


@scan.lower()
def scan_lowering(*inputs: Value, body: Graph, num_scan_inputs: int, **attributes: Any) -> tuple[Value, ...] | None:
    """Unroll the steps if their number is known; else use a Loop."""
    states = _states(inputs, num_scan_inputs)
    where = _axes(attributes["scan_input_axes"], num_scan_inputs)
    slices = list(zip(inputs[states:], where, _axes(attributes["scan_input_directions"], num_scan_inputs), strict=True))
    lengths = [x.shape[axis] for x, axis, _ in slices if x.rank is not None]
    length = next((each for each in lengths if isinstance(each, int)), 0)
    if not length:
        stacked = body.outputs[states:]
        axes = _axes(attributes["scan_output_axes"], len(stacked))
        if any(axis and y.rank is None for axis, y in zip(axes, stacked, strict=True)):
            return None
        return _looped(inputs[:states], slices, body, attributes)
    limits.check("nodes", length * (len(body.nodes) + len(slices)), "Scan written out step by step")
    carried, scanned = list(inputs[:states]), []
    for step in range(length):
        given = [ops.gather(x, length - 1 - step if reverse else step, axis=axis) for x, axis, reverse in slices]
        found = inline(body, [*carried, *given])
        carried = list(found[:states])
        scanned.append(found[states:])
    columns = list(zip(*scanned, strict=True))
    axes = _axes(attributes["scan_output_axes"], len(columns))
    reverses = _axes(attributes["scan_output_directions"], len(columns))
    stacked = [
        ops.concat(*(ops.unsqueeze(y, [axis]) for y in (column[::-1] if reverse else column)), axis=axis)
        for column, axis, reverse in zip(columns, axes, reverses, strict=True)
    ]
    return (*carried, *stacked)


def _batch_type(
    sequence_lens: Value | None, *inputs: Value, body: Graph, num_scan_inputs: int, **_: Any
) -> tuple[Type | None, ...]:
    states = _states(inputs, num_scan_inputs)
    plain = [_without(v.type, 0) for v in inputs]
    elements = [_without(kind, 0) for kind in plain[states:]]
    carried, rest = _carried_types("Scan", body, [], plain[:states], elements)
    batch, length = inputs[-1].shape[0], _common_length([v.shape[1] for v in inputs[states:]])
    for value in (*inputs, *([] if sequence_lens is None else [sequence_lens])):
        if isinstance(batch, int) and isinstance(value.shape[0], int) and value.shape[0] != batch:
            raise TypeMismatch(f"Scan: batch of an input differs from that of the last, {batch}", given=repr(value))
    return (*(inserted(k, 0, batch) for k in carried), *(inserted(inserted(k, 0, length), 0, batch) for k in rest))


def _looped(
    initial: Sequence[Value], slices: Sequence[tuple[Value, int, int]], body: Graph, attributes: dict[str, Any]
) -> tuple[Value, ...]:
    """A Scan of any length as a Loop that gathers its slices by iteration number and stacks along the first axis."""
    length = dims(slices[0][0])[slices[0][1]]

    def step(number: Value, goes_on: Value, *carried: Value) -> list[Value]:
        given = [ops.gather(x, length - 1 - number if reverse else number, axis=axis) for x, axis, reverse in slices]
        return [goes_on, *(v for v in inline(body, [*carried, *given]) if v is not None)]

    kinds = [(v.name, v.type) for v in body.all_inputs[: len(initial)]]
    numbers = [("number", TensorType(DType.int64, ())), ("goes_on", TensorType(DType.bool, ()))]
    results = loop(length, constant(True), *initial, body=subgraph(step, [*numbers, *kinds]))
    carried, stacked = results[: len(initial)], results[len(initial) :]
    axes = _axes(attributes["scan_output_axes"], len(stacked))
    reverses = _axes(attributes["scan_output_directions"], len(stacked))
    return (*carried, *(_moved_from_first(y, *how) for y, *how in zip(stacked, axes, reverses, strict=True)))


def _moved_from_first(stacked: Value, axis: int, reverse: int) -> Value:
    """Move the first axis, along which a Loop stacks, to ``axis``, and reverse it if ``reverse``."""
    if reverse:
        stacked = ops.slice_(stacked, [-1], [-(2**62)], [0], [-1])
    if not axis:
        return stacked
    others = list(range(1, stacked.ndim))
    others.insert(axis % stacked.ndim, 0)
    return ops.transpose(stacked, perm=others)  # type: ignore[no-any-return]


@scan.until(9)
def scan_in_batches(
    sequence_lens=None,
    *initial_state_and_scan_inputs,
    body: Graph,
    num_scan_inputs: int,
    directions: list[int] | None = None,
):
    """Scan each batch entry for as many steps as its sequence is long; later positions are zero."""
    inputs = initial_state_and_scan_inputs
    states, length = _states(inputs, num_scan_inputs), dims(inputs[-1])[1]

    def entry(*values: Value) -> list[Value]:
        steps = None if sequence_lens is None else values[-1]
        given = [v if steps is None or k < states else v[:steps] for k, v in enumerate(values[: len(inputs)])]
        found = scan(*given, body=body, num_scan_inputs=num_scan_inputs, scan_input_directions=directions)
        found = list(found if isinstance(found, tuple) else (found,))
        return [y if steps is None or k < states else _padded(y, length - steps) for k, y in enumerate(found)]

    entries = [*inputs, *([] if sequence_lens is None else [sequence_lens])]
    formals = [(f"entry_{k}", _without(v.type, 0)) for k, v in enumerate(entries)]
    return scan(*entries, body=subgraph(entry, formals), num_scan_inputs=len(entries))


def _padded(y: Value, behind: Value) -> Value:
    zero = constant(np.zeros((1,) * y.ndim), y.dtype)
    return ops.concat(y, ops.expand(zero, [behind, *dims(y)[1:]]), axis=0)  # type: ignore[no-any-return]


def _directions_fit(num_scan_inputs: int, directions: list[int] | None) -> str | None:
    fits = directions is None or len(directions) == num_scan_inputs
    return None if fits else "directions does not have one number for each scanned input"


scan_in_batches.requires(
    shapes(sequence_lens="batch", initial_state_and_scan_inputs="batch ..."), holds(_directions_fit)
)
scan_in_batches.type(_batch_type)


@scan_in_batches.numpy
def scan_in_batches_numpy(
    sequence_lens: Any, *inputs: Any, body: Any, num_scan_inputs: int, directions: list[int] | None
) -> tuple[Any, ...]:
    states = _states(inputs, num_scan_inputs)
    batch, length = len(inputs[-1]), _common_length([x.shape[1] for x in inputs[states:]])
    lengths = [length] * batch if sequence_lens is None else [int(n) for n in sequence_lens]
    if any(not 0 <= steps <= length for steps in lengths):
        given = f"{lengths}, of {length} steps"
        raise TypeMismatch(f"{scan_in_batches.title}: sequence_lens is larger than the scanned inputs", given=given)
    plain = dict.fromkeys(("scan_input_axes", "scan_output_axes", "scan_output_directions"))
    rows = []
    for entry, steps in enumerate(lengths):
        given = [x[entry, ...] for x in inputs[:states]] + [x[entry, :steps] for x in inputs[states:]]
        found = _scan(*given, body=body, num_scan_inputs=num_scan_inputs, scan_input_directions=directions, **plain)
        padded = [np.concatenate([y, np.zeros((length - steps, *y.shape[1:]), y.dtype)]) for y in found[states:]]
        rows.append((*found[:states], *padded))
    return tuple(np.stack(column) for column in zip(*rows, strict=True))
