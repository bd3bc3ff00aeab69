"""Python operators on values as ops."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np

from tenonnx.extend import Dim, DType, Operators, TensorType, TypeMismatch, Value, constant, static
from tenonnx_standard.casting import cast
from tenonnx_standard.composites import gradient_sum, ones_like, sum_to, zeros_like
from tenonnx_standard.joining import concat
from tenonnx_standard.linear_algebra import matmul
from tenonnx_standard.logic import (
    and_,
    bitwise_and,
    bitwise_not,
    bitwise_or,
    greater,
    greater_or_equal,
    less,
    less_or_equal,
    not_,
    or_,
)
from tenonnx_standard.math import add, div, floor, mod, mul, neg, pow_, sub
from tenonnx_standard.shapes import identity, reshape, shape, squeeze, transpose, unsqueeze
from tenonnx_standard.slicing import gather, slice_

_LAST = np.iinfo(np.int64).max


def _is_bool(*values: Any) -> bool:
    return any(isinstance(v, Value) and v.dtype is DType.bool for v in values)


def _is_float(*values: Any) -> bool:
    return any(isinstance(v, Value) and v.dtype.is_float for v in values)


def conjunction(a: Any, b: Any) -> Value:
    """``a & b``: logical for bool, bitwise for integers."""
    return and_(a, b) if _is_bool(a, b) else bitwise_and(a, b)


def disjunction(a: Any, b: Any) -> Value:
    """``a | b``: logical for bool, bitwise for integers."""
    return or_(a, b) if _is_bool(a, b) else bitwise_or(a, b)


def negation(x: Value) -> Value:
    """``~x``: logical for bool, bitwise for integers."""
    return not_(x) if _is_bool(x) else bitwise_not(x)


def floor_divide(a: Any, b: Any) -> Value:
    """``a // b``: Div for integers, which truncates towards zero; the floor of the quotient for floats."""
    return floor(div(a, b)) if _is_float(a, b) else div(a, b)


def modulo(a: Any, b: Any) -> Value:
    """``a % b``, which has the sign of ``b``."""
    return a - floor(div(a, b)) * b if _is_float(a, b) else mod(a, b)


# ----- indexing and dims ----------------------------------------------------------------------------------------------


def getitem(x: Value, key: Any) -> Value:
    """``x[key]`` for a basic key: ints, slices, None and Ellipsis. An integer value gathers along its axis."""
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
            raise TypeMismatch("index is not an int, slice, None, Ellipsis or value", given=repr(item))
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
        raise TypeMismatch("the index holds more than one ellipsis", given=f"{keys} on {x!r}")
    if x.rank is not None and used > x.rank:
        raise TypeMismatch("the index has more entries than there are axes", given=f"{used} entries on {x!r}")
    if places:
        keys[places[0] : places[0] + 1] = [slice(None)] * (x.ndim - used)
    return keys


def dimension(x: Value, axis: int) -> Value:
    """The length of an axis, an int64 scalar."""
    axis %= x.ndim
    return squeeze(shape(x, start=axis, end=axis + 1), [0])  # type: ignore[no-any-return]


def vector(items: Sequence[Any]) -> Value:
    """Concatenate ints and integer values of one element to an int64 vector."""
    parts: list[Value] = []
    run: list[int] = []
    for item in items:
        contents = static(item) if isinstance(item, Value) else np.asarray(item)
        if contents is not None:
            run += [int(number) for number in contents.reshape(-1)]
            continue
        if run:
            parts.append(constant(np.asarray(run, dtype=np.int64)))
            run = []
        whole = item if item.dtype is DType.int64 else cast(item, to=DType.int64)
        parts.append(whole if whole.rank == 1 else reshape(whole, [-1]))
    if run or not parts:
        parts.append(constant(np.asarray(run, dtype=np.int64)))
    return parts[0] if len(parts) == 1 else concat(*parts, axis=0)


def lengths(dims: Sequence[Dim], inputs: Sequence[Value]) -> Value | None:
    """A vector of ints and of dims of ``inputs``; None if a dim occurs in no input."""
    shapes = [(x, x.type.shape or ()) for x in inputs if isinstance(x.type, TensorType)]
    count = len(dims)
    for x, sizes in shapes:
        for first in range(len(sizes) - count + 1):
            if list(sizes[first : first + count]) == list(dims):
                return shape(x, start=first, end=first + count)
    places = {dim: (x, axis) for x, sizes in reversed(shapes) for axis, dim in enumerate(sizes)}
    if not all(isinstance(dim, int) or dim in places for dim in dims):
        return None
    parts: list[Value] = []
    for is_number, group in itertools.groupby(dims, key=lambda dim: isinstance(dim, int)):
        if is_number:
            parts.append(constant(np.array(list(group), np.int64)))
        else:
            parts += [shape(x, start=axis, end=axis + 1) for x, axis in map(places.__getitem__, group)]
    return concat(*parts, axis=0)


OPERATORS = Operators(
    add=add,
    subtract=sub,
    multiply=mul,
    divide=div,
    floor_divide=floor_divide,
    modulo=modulo,
    power=pow_,
    matmul=matmul,
    negative=neg,
    and_=conjunction,
    or_=disjunction,
    not_=negation,
    less=less,
    less_or_equal=less_or_equal,
    greater=greater,
    greater_or_equal=greater_or_equal,
    lengths=lengths,
    identity=identity,
    transpose=lambda value, order: transpose(value, perm=list(order)),
    getitem=getitem,
    dimension=dimension,
    vector=vector,
    sum_to=sum_to,
    gradient_sum=gradient_sum,
    zeros_like=zeros_like,
    ones_like=ones_like,
    cast=lambda value, dtype: cast(value, to=dtype),
)
