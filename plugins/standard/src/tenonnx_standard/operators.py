"""What Python's operators on values mean, and the few helpers that transforms ask for by name."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tenonnx.extend import Dim, DType, TypeMismatch, Value, constant, operator_table, static
from tenonnx.graph.symbolic import known_lower_bound
from tenonnx_standard.casting import cast, cast_like
from tenonnx_standard.linear_algebra import matmul, sum_of_first_axes
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
from tenonnx_standard.reduction import reduce_sum
from tenonnx_standard.shape import concat, expand, identity, reshape, shape, squeeze, unsqueeze
from tenonnx_standard.slicing import gather, non_zero, slice_

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
    """``x[key]`` for a basic key: ints, slices, None and Ellipsis; an integer value picks along its axis."""
    keys = _without_ellipsis(x, list(key) if isinstance(key, tuple) else [key])
    cuts: list[tuple[Any, Any, int, Any]] = []
    dropped: list[int] = []
    picked: list[tuple[int, Value]] = []
    added: list[int] = []
    axis = place = 0
    for item in keys:
        if item is None:
            added.append(place)
            place += 1
            continue
        if isinstance(item, slice):
            if item != slice(None):
                cuts.append(_cut(item, axis))
            place += 1
        elif isinstance(item, Value):
            picked.append((axis, item))
            place += item.ndim
        elif isinstance(item, int | np.integer) and not isinstance(item, bool):
            cuts.append((int(item), int(item) + 1 if item != -1 else _LAST, axis, 1))
            dropped.append(axis)
        else:
            raise TypeMismatch("an index must be made of ints, slices, None, Ellipsis and values", given=repr(item))
        axis += 1
    if cuts:
        x = slice_(x, *(list(column) for column in zip(*cuts, strict=True)))
    for where, index in reversed(picked):
        x = gather(x, index, axis=where)
    if dropped:
        x = squeeze(x, [axis + sum(index.ndim - 1 for where, index in picked if where < axis) for axis in dropped])
    return unsqueeze(x, added) if added else x


def _cut(item: slice, axis: int) -> tuple[Any, Any, int, Any]:
    """Start, end, axis and step of a slice."""
    step = 1 if item.step is None else item.step
    back = isinstance(step, int) and step < 0
    start = (_LAST if back else 0) if item.start is None else item.start
    return start, (-_LAST if back else _LAST) if item.stop is None else item.stop, axis, step


def _without_ellipsis(x: Value, keys: list[Any]) -> list[Any]:
    places = [k for k, item in enumerate(keys) if item is Ellipsis]
    used = sum(item is not None and item is not Ellipsis for item in keys)
    if len(places) > 1:
        raise TypeMismatch("an index can hold one ellipsis", given=f"{keys} on {x!r}")
    if x.rank is not None and used > x.rank:
        raise TypeMismatch("an index can have as many entries as there are axes", given=f"{used} entries on {x!r}")
    if places:
        keys[places[0] : places[0] + 1] = [slice(None)] * (x.ndim - used)
    return keys


def dimension(x: Value, axis: int) -> Value:
    """The length of one axis, a scalar int64."""
    axis %= x.ndim
    return squeeze(shape(x, start=axis, end=axis + 1), [0])  # type: ignore[no-any-return]


def vector(items: Sequence[Any]) -> Value:
    """Ints and integer values of one element, one after the other, as a one-dimensional int64 tensor."""
    parts: list[Value] = []
    run: list[int] = []
    for item in items:
        known = static(item) if isinstance(item, Value) else np.asarray(item)
        if known is not None:
            run += [int(number) for number in known.reshape(-1)]
            continue
        if run:
            parts.append(constant(np.asarray(run, dtype=np.int64)))
            run = []
        whole = item if item.dtype is DType.int64 else cast(item, to=DType.int64)
        parts.append(whole if whole.rank == 1 else reshape(whole, [-1]))
    if run or not parts:
        parts.append(constant(np.asarray(run, dtype=np.int64)))
    return parts[0] if len(parts) == 1 else concat(*parts, axis=0)


# ----- gradients ------------------------------------------------------------------------------------------------------


def zeros_like(x: Value) -> Value:
    """Zeros of the type of ``x``."""
    return _filled_like(x, 0)


def ones_like(x: Value) -> Value:
    """Ones of the type of ``x``."""
    return _filled_like(x, 1)


def _filled_like(x: Value, number: int) -> Value:
    element = constant(np.asarray(number), x.dtype)
    return element if x.rank == 0 else expand(element, shape(x))


def sum_to(g: Value, like: Value) -> Value:
    """``g`` summed over the axes along which ``like`` was broadcast to its shape.

    A dim of ``like`` that is not known may be 1 at run time: whether it was broadcast is then found out by comparing
    shapes.
    """
    if g.rank is None or like.rank is None:
        return _sum_where_shapes_differ(g, like)
    lead = g.ndim - like.ndim
    leading = list(range(lead))
    inner, unsure = [], False
    for axis, (wide, narrow) in enumerate(zip(g.shape[lead:], like.shape, strict=True), start=lead):
        if narrow == 1:
            inner += [axis] if wide != 1 else []
        else:
            unsure |= not _never_broadcast(narrow, wide)
    if inner:
        g = reduce_sum(g, leading + inner, keepdims=1)
        g = squeeze(g, leading) if lead else g
    elif lead:
        g = sum_of_first_axes(g, lead)
    return _sum_where_shapes_differ(g, like) if unsure else g


def _never_broadcast(narrow: Dim, wide: Dim) -> bool:
    """Whether an axis of length ``narrow`` is known to be as long as the one of length ``wide`` that it became."""
    return wide == 1 or (narrow is not None and narrow == wide) or (known_lower_bound(narrow) or 0) >= 2


def _sum_where_shapes_differ(g: Value, like: Value) -> Value:
    """``g`` summed to the shape of ``like`` over axes that are found at run time."""
    given, wanted = shape(g), shape(like)
    aligned = wanted
    if g.rank is None or g.rank != like.rank:
        missing = shape(given) - shape(wanted)
        aligned = concat(expand(constant(np.ones(1, dtype=np.int64)), missing), wanted, axis=0)
    axes = reshape(non_zero(not_(equal(given, aligned))), [-1])
    return reshape(reduce_sum(g, axes, keepdims=1, noop_with_empty_axes=1), wanted, allowzero=1)  # type: ignore[no-any-return]


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
        "identity": identity,
        "getitem": getitem,
        "dimension": dimension,
        "vector": vector,
        "sum_to": sum_to,
        "zeros_like": zeros_like,
        "ones_like": ones_like,
        "cast": lambda value, dtype: cast(value, to=dtype),
        "cast_like": cast_like,
    }
)
