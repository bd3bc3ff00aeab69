"""Branches and loops."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

import tenonnx_standard as ops
from tenonnx.extend import DType, Graph, TensorType, Value, constant, dims, inline, static, subgraph
from tenonnx_litert.builtins import control, movement
from tenonnx_litert.lowerings.registry import lowers, shape_vector, unless
from tenonnx_standard.control_flow import counter_shape


@lowers(ops.if_)
def if_(cond: Value, *, then_branch: Graph, else_branch: Graph) -> Any:
    """IF with a scalar condition and the branches as subgraphs."""
    branches = [subgraph(lambda each=each: inline(each, []), name=each.name) for each in (then_branch, else_branch)]
    return control.if_(_scalar(cond), then_branch=branches[0], else_branch=branches[1])


@lowers(ops.loop)
def loop(M: Value | None, cond: Value | None, *v_initial: Value, body: Graph, _outputs: int | None = None) -> Any:
    """WHILE whose state is the iteration number, the condition, the carried values and the stacked outputs."""
    count = len(v_initial)
    types = ops.loop.rules["type"](M, cond, *v_initial, body=body, _outputs=_outputs)
    kinds = [kind.type if hasattr(kind, "type") else kind for kind in types]
    limit = None if M is None else _scalar(M)
    stacked = [_room(limit, kind, [*v_initial, *body.captures]) for kind in kinds[count:]]
    counter, flag = TensorType(DType.int64, ()), TensorType(DType.bool, ())
    types = [counter, flag, *kinds[:count], *(value.type for value in stacked)]
    inputs = [(f"state_{k}", kind) for k, kind in enumerate(types)]

    def going_on(step: Value, holds: Value, *_: Value) -> Any:
        return holds if limit is None else ops.and_(holds, ops.less(step, limit))

    def iteration(step: Value, holds: Value, *state: Value) -> Any:
        before = [
            value if counter_shape(formal) == () else ops.reshape(value, [1])
            for value, formal in zip((step, holds), body.inputs[:2], strict=True)
        ]
        holds, *after = inline(body, [*before, *state[:count]])
        rows = [_with_row(rows, row, step) for rows, row in zip(state[count:], after[count:], strict=True)]
        carried = [_apart(value, place, state) for place, value in enumerate(after[:count])]
        return [ops.add(step, constant(np.asarray(1))), _scalar(holds), *carried, *rows]

    first = constant(np.asarray(0)), constant(np.asarray(True)) if cond is None else _scalar(cond)
    steps, _, *results = control.while_(
        *first, *v_initial, *stacked, cond=subgraph(going_on, inputs, name="cond"), body=subgraph(iteration, inputs)
    )
    if (cond is None or bool(static(cond))) and _always_goes_on(body):
        return tuple(results)
    rows = [ops.slice_(each, [0], ops.reshape(steps, [1]), [0]) for each in results[count:]]
    return (*results[:count], *rows)


def _always_goes_on(body: Graph) -> bool:
    holds = body.outputs[0]
    while holds.producer is not None and holds.producer.op is ops.identity:
        holds = holds.producer.inputs[0]
    contents = static(holds)
    return holds is body.inputs[1] or (contents is not None and bool(contents))


def _apart(value: Value, place: int, state: Sequence[Value]) -> Value:
    """Copy a state value that changes its position, since the interpreter overwrites the states one after the other."""
    moved = any(value is each for k, each in enumerate(state) if k != place)
    return ops.identity(value) if moved else value  # type: ignore[no-any-return]


def _scalar(value: Value) -> Value:
    return value if value.rank == 0 else ops.reshape(value, constant(np.zeros(0, np.int64)))  # type: ignore[no-any-return]


def _room(limit: Value | None, kind: Any, others: Sequence[Value]) -> Value:
    """Zeros in the shape of an output stacked over ``limit`` iterations."""
    unless(limit is None, "the length of a scan output is not known before the loop runs")
    unless(not isinstance(kind, TensorType) or kind.shape is None, "the rank of a scan output is unknown")
    shape = [limit, *(_size(dim, others) for dim in kind.shape[1:])]
    return movement.fill(shape_vector(shape), constant(np.zeros((), kind.dtype.numpy), kind.dtype))  # type: ignore[no-any-return]


def _size(dim: Any, others: Sequence[Value]) -> Any:
    """A dim as a number if static, else as an int64 value, read from the shapes of ``others``."""
    if isinstance(dim, int):
        return dim
    for value in others:
        for axis, each in enumerate(value.shape or ()):
            if dim is not None and each == dim:
                return dims(value)[axis]
    unless(True, "a dim of a scan output is unknown")
    return None


def _with_row(rows: Value, row: Value, step: Value) -> Value:
    start = shape_vector([step, *[0] * row.ndim])
    return movement.dynamic_update_slice(rows, ops.unsqueeze(row, [0]), start)  # type: ignore[no-any-return]
