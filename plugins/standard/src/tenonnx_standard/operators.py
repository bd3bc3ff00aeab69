"""What Python's operators on values mean, and the few helpers that transforms ask for by name."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from tenonnx.extend import DType, TypeMismatch, Value, constant, operator_table, static
from tenonnx.graph.dims import known_lower_bound

from tenonnx_standard.casting import cast, cast_like
from tenonnx_standard.linear_algebra import matmul
from tenonnx_standard.logic import (
    and_,
    bitwise_and,
    bitwise_not,
    bitwise_or,
    equal,
    greater,
    greater_or_equal,
    less,
    less_or_equal,
    not_,
    or_,
)
from tenonnx_standard.math import add, div, floor, mod, mul, neg, pow_, sub

_LAST = np.iinfo(np.int64).max


def _is_bool(*values: Any) -> bool:
    return any(isinstance(v, Value) and v.dtype is DType.bool for v in values)


def _is_float(*values: Any) -> bool:
    return any(isinstance(v, Value) and v.dtype.is_float for v in values)


def conjunction(a: Any, b: Any) -> Value:
    """``a & b``: logical on bools, bit by bit on integers."""
    return and_(a, b) if _is_bool(a, b) else bitwise_and(a, b)


def disjunction(a: Any, b: Any) -> Value:
    """``a | b``: logical on bools, bit by bit on integers."""
    return or_(a, b) if _is_bool(a, b) else bitwise_or(a, b)


def negation(x: Value) -> Value:
    """``~x``: logical on bools, bit by bit on integers."""
    return not_(x) if _is_bool(x) else bitwise_not(x)


def floor_divide(a: Any, b: Any) -> Value:
    """``a // b``: Div on integers, which rounds towards zero; the floor of the quotient on floats."""
    return floor(div(a, b)) if _is_float(a, b) else div(a, b)


def modulo(a: Any, b: Any) -> Value:
    """``a % b``, which has the sign of ``b``."""
    return a - floor(div(a, b)) * b if _is_float(a, b) else mod(a, b)


# ----- indexing and dims ----------------------------------------------------------------------------------------------


def getitem(x: Value, key: Any) -> Value:
    """``x[key]`` for a basic key: ints, slices, None and Ellipsis; an int64 value picks along its axis."""
    from tenonnx_standard.shape import squeeze, unsqueeze
    from tenonnx_standard.slicing import gather, slice_

    keys = list(key) if isinstance(key, tuple) else [key]
    keys = _without_ellipsis(x, keys)
    starts: list[Any] = []
    ends: list[Any] = []
    axes: list[int] = []
    steps: list[Any] = []
    dropped: list[int] = []
    picked: list[tuple[int, Value]] = []
    added: list[int] = []
    axis = result_axis = 0
    for item in keys:
        if item is None:
            added.append(result_axis)
            result_axis += 1
            continue
        if isinstance(item, slice):
            if not (item.start is None and item.stop is None and item.step is None):
                step = 1 if item.step is None else item.step
                back = isinstance(step, int) and step < 0
                starts.append((_LAST if back else 0) if item.start is None else item.start)
                ends.append((-_LAST if back else _LAST) if item.stop is None else item.stop)
                axes.append(axis)
                steps.append(step)
            result_axis += 1
        elif isinstance(item, Value):
            picked.append((axis, item))
            result_axis += item.ndim
        else:
            index = int(item)
            starts.append(index)
            ends.append(index + 1 if index != -1 else _LAST)
            axes.append(axis)
            steps.append(1)
            dropped.append(axis)
        axis += 1
    if axes:
        x = slice_(x, starts, ends, axes, steps)
    for place, index in reversed(picked):
        x = gather(x, index, axis=place)
    if picked and dropped:
        dropped = [d + sum(index.ndim - 1 for place, index in picked if place < d) for d in dropped]
    if dropped:
        x = squeeze(x, dropped)
    return unsqueeze(x, added) if added else x


def _without_ellipsis(x: Value, keys: list[Any]) -> list[Any]:
    places = [k for k, item in enumerate(keys) if item is Ellipsis]
    used = sum(item is not None and item is not Ellipsis for item in keys)
    if len(places) > 1:
        raise TypeMismatch("an index can hold one ellipsis", given=f"{keys} on {x!r}")
    if x.rank is not None and used > x.rank:
        raise TypeMismatch(
            "an index cannot have more entries than the tensor has axes", given=f"{used} entries on {x!r}"
        )
    if places:
        keys[places[0] : places[0] + 1] = [slice(None)] * (x.ndim - used)
    return keys


def dimension(x: Value, axis: int) -> Value:
    """The length of one axis, a scalar int64."""
    from tenonnx_standard.shape import shape, squeeze

    axis = axis % x.ndim
    return squeeze(shape(x, start=axis, end=axis + 1), [0])


def vector(items: Sequence[Any]) -> Value:
    """Ints and int64 values of one element, one after the other, as a one-dimensional int64 tensor."""
    from tenonnx_standard.shape import concat, reshape

    parts: list[Value] = []
    run: list[int] = []

    def flush() -> None:
        if run:
            parts.append(constant(np.asarray(run, dtype=np.int64)))
            run.clear()

    for item in items:
        if not isinstance(item, Value):
            run.append(int(item))
            continue
        known = static(item)
        if known is not None:
            run.extend(int(v) for v in known.reshape(-1))
            continue
        flush()
        part = item if item.dtype is DType.int64 else cast(item, to=DType.int64)
        parts.append(part if part.rank == 1 else reshape(part, [-1]))
    flush()
    return parts[0] if len(parts) == 1 else concat(*parts, axis=0)


# ----- gradients ------------------------------------------------------------------------------------------------------


def zeros_like(x: Value) -> Value:
    return _filled_like(x, 0)


def ones_like(x: Value) -> Value:
    return _filled_like(x, 1)


def _filled_like(x: Value, number: int) -> Value:
    from tenonnx_standard.shape import expand, shape

    one = constant(np.asarray(number), x.dtype)
    return one if x.rank == 0 else expand(one, shape(x))


def sum_to(g: Value, like: Value) -> Value:
    """``g`` summed over the axes along which ``like`` was broadcast to its shape."""
    from tenonnx_standard.reduction import reduce_sum
    from tenonnx_standard.shape import squeeze

    if g.rank is None or like.rank is None:
        return _sum_to_unknown_rank(g, like)
    lead = g.ndim - like.ndim
    inner, uncertain = [], False
    for axis, (wide, narrow) in enumerate(zip(g.shape[lead:], like.shape, strict=True)):
        if narrow == 1:
            inner += [lead + axis] if wide != 1 else []
        elif not (wide == 1 or (wide is not None and wide == narrow) or (known_lower_bound(narrow) or 0) >= 2):
            uncertain = True
    leading = list(range(lead))
    if lead and not inner:
        g = reduce_sum(g, leading, keepdims=0)
    elif inner:
        g = reduce_sum(g, leading + inner, keepdims=1)
        g = squeeze(g, leading) if lead else g
    return _sum_where_shapes_differ(g, like) if uncertain else g


def _sum_where_shapes_differ(g: Value, like: Value) -> Value:
    """``g`` summed to the shape of ``like``, which has as many axes, over axes that are found at run time."""
    from tenonnx_standard.reduction import reduce_sum
    from tenonnx_standard.shape import reshape, shape
    from tenonnx_standard.slicing import non_zero

    wanted = shape(like)
    axes = reshape(non_zero(not_(equal(shape(g), wanted))), [-1])
    return reshape(reduce_sum(g, axes, keepdims=1, noop_with_empty_axes=1), wanted)


def _sum_to_unknown_rank(g: Value, like: Value) -> Value:
    from tenonnx_standard.shape import concat, expand, reshape, shape

    wanted, given = shape(like), shape(g)
    missing = sub(shape(given), shape(wanted))
    padded = concat(expand(constant(np.ones(1, np.int64)), missing), wanted, axis=0)
    from tenonnx_standard.reduction import reduce_sum
    from tenonnx_standard.slicing import non_zero

    axes = reshape(non_zero(not_(equal(given, padded))), [-1])
    return reshape(reduce_sum(g, axes, keepdims=1, noop_with_empty_axes=1), wanted)


def _identity(x: Value) -> Value:
    from tenonnx_standard.shape import identity

    return identity(x)


operator_table.update(
    {
        "add": add,
        "subtract": sub,
        "multiply": mul,
        "divide": div,
        "floor_divide": floor_divide,
        "modulo": modulo,
        "power": pow_,
        "matmul": matmul,
        "negative": neg,
        "and": conjunction,
        "or": disjunction,
        "not": negation,
        "less": less,
        "less_or_equal": less_or_equal,
        "greater": greater,
        "greater_or_equal": greater_or_equal,
        "identity": _identity,
        "getitem": getitem,
        "dimension": dimension,
        "vector": vector,
        "sum_to": sum_to,
        "zeros_like": zeros_like,
        "ones_like": ones_like,
        "cast_like": cast_like,
    }
)
