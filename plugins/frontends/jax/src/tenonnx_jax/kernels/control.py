"""Ops with subgraphs: JAX's control flow for traced operands, Python's for known ones."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

import tenonnx_standard as ops
from tenonnx.extend import InvalidCall, TensorType, find_rule
from tenonnx_jax.kernels import DataDependent, filled, ints, is_traced, known, rule
from tenonnx_standard.control_flow import counter_shape

#: Maximum number of iterations to unroll, so that carried values may change their shape.
_UNROLLED = 4

#: The numpy rules of these ops accept elements of any type.
for _op in (
    ops.sequence_construct,
    ops.sequence_empty,
    ops.sequence_length,
    ops.optional,
    ops.optional_get_element,
    ops.optional_has_element,
    ops.optional_has_element_of,
):
    _rule = find_rule(_op, "numpy")
    assert _rule is not None
    rule(_op)(_rule)


@rule(ops.sequence_at)
def sequence_at_rule(sequence: Any, position: Any) -> Any:
    return sequence[ints(position)[0]]


@rule(ops.concat_from_sequence)
def concat_from_sequence_rule(sequence: Any, *, axis: int, new_axis: int) -> Any:
    return jnp.stack(sequence, axis) if new_axis else jnp.concatenate(sequence, axis)


def _arrays(contents: Any) -> Any:
    return jax.tree_util.tree_map(jnp.asarray, tuple(contents))


@rule(ops.if_)
def if_rule(condition: Any, *, then_branch: Any, else_branch: Any) -> tuple[Any, ...]:
    if not is_traced(condition):
        return tuple(then_branch() if bool(known(condition).reshape(())) else else_branch())
    branches = [lambda branch=branch: _arrays(branch()) for branch in (then_branch, else_branch)]
    shapes = [jax.eval_shape(branch) for branch in branches]
    if str(shapes[0]) != str(shapes[1]):
        raise DataDependent("branches with a traced condition return different shapes", given=str(shapes))
    return tuple(lax.cond(condition.reshape(()), *branches))


@rule(ops.loop)
def loop_rule(limit: Any, condition: Any, *initial: Any, body: Any, _outputs: int | None) -> tuple[Any, ...]:
    number = len(initial)
    if any(counter_shape(value) for value in body.graph.inputs[:2]):
        raise DataDependent("a loop does not pass the iteration number to its body as a scalar")
    kinds = [value.type for value in body.graph.outputs[1 + number :]]
    free = not any(map(is_traced, (limit, condition)))
    last = None if limit is None or is_traced(limit) else ints(limit)[0]
    if not any(map(is_traced, (*jax.tree_util.tree_leaves(initial), *body.captured, limit, condition))):
        return _step_by_step(last, condition, initial, body, kinds)
    if free and condition is not None and not bool(known(condition)):
        last = 0
    always = _goes_on(body, initial)
    if free and last is not None and (last <= _UNROLLED or not initial) and always:
        return _step_by_step(last, None, initial, body, kinds)
    if free and last is not None and always:
        return _scanned(last, initial, body, number)
    if kinds:
        raise DataDependent("the number of iterations of a loop with scan outputs is unknown when JAX compiles")
    return _while(limit, condition, initial, body, number)


def _goes_on(body: Any, initial: Any) -> bool:
    """Whether the condition in the body is always true."""
    found: list[bool] = []

    def once(position: Any, carried: Any) -> Any:
        results = body(position, np.array(True), *carried)
        found.append(not is_traced(results[0]) and bool(known(results[0])))
        return _arrays(results[1:])

    try:
        jax.eval_shape(once, jnp.zeros((), jax.dtypes.canonicalize_dtype(jnp.int64)), _arrays(initial))
    except (TypeError, ValueError) as error:
        raise DataDependent("JAX cannot trace a loop", given=str(error).split("\n")[0]) from error
    return found[0]


def _scanned(last: int, initial: Any, body: Any, number: int) -> tuple[Any, ...]:
    def step(carried: Any, position: Any) -> Any:
        found = _arrays(body(position, np.array(True), *carried))
        return found[1 : 1 + number], found[1 + number :]

    try:
        carried, rows = lax.scan(
            step, _arrays(initial), jnp.arange(last, dtype=jax.dtypes.canonicalize_dtype(np.int64))
        )
    except TypeError as error:
        raise DataDependent("a loop-carried value changes its shape", given=str(error).split("\n")[0]) from error
    return (*carried, *rows)


def _while(limit: Any, condition: Any, initial: Any, body: Any, number: int) -> tuple[Any, ...]:
    dtype = jax.dtypes.canonicalize_dtype(jnp.int64)
    most = jnp.asarray(np.iinfo(dtype).max if limit is None else limit, dtype).reshape(())
    first = jnp.asarray(True if condition is None else condition).reshape(())

    def step(state: Any) -> Any:
        position, going_on, carried = state
        found = _arrays(body(position, going_on, *carried))
        return position + 1, found[0].reshape(()), found[1 : 1 + number]

    try:
        state = lax.while_loop(
            lambda state: (state[0] < most) & state[1], step, (jnp.zeros((), dtype), first, _arrays(initial))
        )
    except TypeError as error:
        raise DataDependent("a loop-carried value changes its shape", given=str(error).split("\n")[0]) from error
    return tuple(state[2])


def _step_by_step(last: int | None, condition: Any, initial: Any, body: Any, kinds: Any) -> tuple[Any, ...]:
    carried, rows, count = list(initial), [], 0
    going_on = condition is None or bool(known(condition))
    while going_on and (last is None or count < last):
        found = body(np.array(count, np.int64), np.array(True), *carried)
        going_on = bool(known(found[0]))
        carried = list(found[1 : 1 + len(carried)])
        rows.append(tuple(found[1 + len(carried) :]))
        count += 1
    return (*carried, *(_stacked([row[k] for row in rows], kind, 0) for k, kind in enumerate(kinds)))


def _stacked(arrays: Any, kind: Any, axis: int) -> Any:
    if len({array.shape for array in arrays}) > 1:
        given = " and ".join(str(list(array.shape)) for array in arrays[:3])
        raise InvalidCall("a scan output changes its shape between iterations", given=given)
    if arrays:
        return jnp.stack(arrays, axis)
    dims = [dim if isinstance(dim, int) else 0 for dim in (kind.shape or ())] if isinstance(kind, TensorType) else []
    dims.insert(axis % (len(dims) + 1), 0)
    return jnp.zeros(dims, jax.dtypes.canonicalize_dtype(kind.dtype.numpy))


@rule(ops.scan)
def scan_rule(*inputs: Any, body: Any, num_scan_inputs: int, **given: Any) -> tuple[Any, ...]:
    states = len(inputs) - num_scan_inputs
    where = filled(given["scan_input_axes"], 0, num_scan_inputs)
    backward = filled(given["scan_input_directions"], 0, num_scan_inputs)
    outputs = len(body.graph.outputs) - states
    axes, reverses = (filled(given[f"scan_output_{what}"], 0, outputs) for what in ("axes", "directions"))
    whole = all(backward) and all(reverses)  # then nothing has to be reversed
    columns = [
        jnp.flip(jnp.moveaxis(x, axis, 0), 0) if back and not whole else jnp.moveaxis(x, axis, 0)
        for x, axis, back in zip(inputs[states:], where, backward, strict=True)
    ]

    def step(carried: Any, slices: Any) -> Any:
        found = _arrays(body(*carried, *slices))
        return found[:states], found[states:]

    try:
        carried, rows = lax.scan(step, _arrays(inputs[:states]), tuple(columns), reverse=whole)
    except TypeError as error:
        raise DataDependent("a carried value of a scan changes its shape", given=str(error).split("\n")[0]) from error
    stacked = [
        jnp.moveaxis(jnp.flip(row, 0) if back and not whole else row, 0, axis)
        for row, axis, back in zip(rows, axes, reverses, strict=True)
    ]
    return (*carried, *stacked)
