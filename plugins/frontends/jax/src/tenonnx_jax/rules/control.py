"""Loops and branches."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

import tenonnx_standard as ops
from tenonnx.extend import DType, TensorType, Value, constant, static, subgraph
from tenonnx_jax.dims import as_dim, as_type
from tenonnx_jax.rules import rule
from tenonnx_jax.types import Parts, is_complex, is_key


def flat(values: Iterable[Any]) -> list[Value]:
    """Flatten values, expanding those with several parts."""
    return [part for value in values for part in (value if isinstance(value, Parts) else (value,))]


def together(values: Sequence[Value], avals: Sequence[Any]) -> list[Any]:
    """Inverse of ``flat``: one value, or parts, for each of ``avals``."""
    rest = iter(values)
    result: list[Any] = []
    for aval in avals:
        count = 2 if is_key(aval.dtype) or is_complex(aval.dtype) else 1
        result.append(Parts(next(rest) for _ in range(count)) if count > 1 else next(rest))
    return result


def types_of(avals: Sequence[Any]) -> list[TensorType]:
    return [as_type(a) for a in avals for _ in range(2 if is_key(a.dtype) or is_complex(a.dtype) else 1)]


def _results(found: Sequence[Any]) -> list[Value]:
    """Outputs of a subgraph, each a separate value."""
    from tenonnx_jax.interpreter import as_value

    return [ops.identity(value) for value in flat(as_value(each) for each in found)]


def _formals(kinds: Sequence[TensorType], name: str) -> list[tuple[str, TensorType]]:
    return [(f"{name}_{k}", kind) for k, kind in enumerate(kinds)]


def _as_tuple(found: Any) -> tuple[Value, ...]:
    return found if isinstance(found, tuple) else (found,)


@rule("platform_index")
def platform_index_rule(equation: Any, *_: Any, platforms: Any, **__: Any) -> Value:
    """Index of JAX's implementation for CPUs."""
    matching = [k for k, names in enumerate(platforms) if names is None or "cpu" in names]
    return constant(np.asarray(matching[0], np.int32))


@rule("cond")
def cond_rule(equation: Any, index: Value, *values: Any, branches: Any, **_: Any) -> Any:
    def branch(closed: Any) -> Any:
        return subgraph(lambda: _results(equation.within().run(closed, values)), name="branch")

    def chosen(first: int) -> list[Value]:
        if first == len(branches) - 1:
            return _results(equation.run(branches[first], values))
        condition = index if index.dtype is DType.bool else ops.greater(index, _number(first, index))
        other = (
            branch(branches[first + 1])
            if first + 2 == len(branches)
            else subgraph(lambda: chosen(first + 1), name="branch")
        )
        return list(_as_tuple(ops.if_(condition, then_branch=other, else_branch=branch(branches[first]))))

    if not equation.outs:
        return []
    contents = static(index)
    if contents is not None:
        return equation.run(branches[min(max(int(contents), 0), len(branches) - 1)], values)
    return together(chosen(0), equation.outs)


def _number(number: int, like: Value) -> Value:
    return constant(np.asarray(number, like.dtype.numpy))


@rule("while")
def while_rule(
    equation: Any, *values: Any, cond_jaxpr: Any, body_jaxpr: Any, cond_nconsts: int, body_nconsts: int, **_: Any
) -> Any:
    of_condition, of_body = values[:cond_nconsts], values[cond_nconsts : cond_nconsts + body_nconsts]
    state = values[cond_nconsts + body_nconsts :]
    avals = equation.outs

    def condition(interpreter: Any, state: Sequence[Any]) -> Value:
        (found,) = interpreter.run(cond_jaxpr, [*of_condition, *state])
        value: Value = as_value(found)
        return value

    def step(count: Value, going: Value, *states: Value) -> list[Value]:
        inner = equation.within()
        before = together(states, avals)
        found = inner.run(body_jaxpr, [*of_body, *before])
        if is_batched:  # elements whose loop has ended keep their state
            mask = condition(inner, before)
            found = [_chosen(mask, as_value(new), old) for new, old in zip(found, before, strict=True)]
        return _results([_any(condition(inner, found)), *found])

    from tenonnx_jax.interpreter import as_value

    is_batched = len(cond_jaxpr.out_avals[0].shape) > 0
    start = _any(condition(equation.interpreter, [equation.interpreter.known(v) for v in state]))
    body = subgraph(step, _loop_formals(types_of(avals)))
    return together(_as_tuple(ops.loop(None, start, *flat(state), body=body)), avals)


def _any(mask: Value) -> Value:
    return (
        mask if not mask.ndim else ops.cast(ops.reduce_max(ops.cast(mask, to=DType.int32), keepdims=0), to=DType.bool)
    )


def _chosen(mask: Value, new: Any, old: Any) -> Any:
    if isinstance(new, Parts):
        return Parts(_chosen(mask, *pair) for pair in zip(new, old, strict=True))
    more = new.ndim - mask.ndim
    return ops.where(ops.unsqueeze(mask, list(range(mask.ndim, new.ndim))) if more else mask, new, old)


def _loop_formals(kinds: Sequence[TensorType]) -> list[tuple[str, TensorType]]:
    return [("step", TensorType(DType.int64, ())), ("going", TensorType(DType.bool, ())), *_formals(kinds, "state")]


@rule("scan")
def scan_rule(
    equation: Any, *values: Any, jaxpr: Any, num_consts: int, num_carry: int, length: Any, reverse: bool, **_: Any
) -> Any:
    consts, state, rows = (
        values[:num_consts],
        values[num_consts : num_consts + num_carry],
        values[num_consts + num_carry :],
    )
    carried, stacked = equation.outs[:num_carry], equation.outs[num_carry:]
    inner_rows = [var.aval for var in jaxpr.jaxpr.invars[num_consts + num_carry :]]
    count = len(types_of(carried))
    empty = types_of(stacked)
    if length == 0 and all(isinstance(dim, int) for kind in empty for dim in kind.shape or ()):
        zeros = [constant(np.zeros(kind.shape or (), kind.dtype.numpy)) for kind in empty]  # for a Scan of length 0
        return together([*flat(state), *zeros], equation.outs)

    def compute(states: Sequence[Value], elements: Sequence[Value]) -> list[Value]:
        given = [*consts, *together(states, carried), *together(elements, inner_rows)]
        return _results(equation.within().run(jaxpr, given))

    if rows:
        kinds = [*types_of(carried), *types_of(inner_rows)]
        body = subgraph(lambda *values: compute(values[:count], values[count:]), _formals(kinds, "element"))
        sequences = flat(rows)
        found = ops.scan(
            *flat(state),
            *sequences,
            body=body,
            num_scan_inputs=len(sequences),
            scan_input_directions=[int(reverse)] * len(sequences) if reverse else None,
            scan_output_directions=[int(reverse)] * len(types_of(stacked)) if reverse and stacked else None,
        )
        return together(_as_tuple(found), equation.outs)

    def step(number: Value, going: Value, *states: Value) -> list[Value]:
        return [ops.identity(going), *compute(states, ())]

    body = subgraph(step, _loop_formals(types_of(carried)))
    found = _as_tuple(ops.loop(equation.sizes.value(length), constant(np.asarray(True)), *flat(state), body=body))
    results = list(found)
    if reverse:
        last = np.iinfo(np.int64).min
        results[count:] = [ops.slice_(each, [-1], [last], [0], [-1]) for each in results[count:]]
    return together(results, equation.outs)


@rule("custom_linear_solve")
def custom_linear_solve_rule(equation: Any, *values: Any, const_lengths: Any, jaxprs: Any, **_: Any) -> Any:
    """Evaluate the solver that the function defines for its forward pass."""
    start = const_lengths.matvec + const_lengths.vecmat
    consts = values[start : start + const_lengths.solve]
    given = values[sum(const_lengths) :]
    found = equation.run(jaxprs.solve, [*consts, *given])
    return list(found[: len(equation.outs)])


Combine = Callable[[Value, Value], Value]

__all__ = ["as_dim", "flat", "together", "types_of"]
