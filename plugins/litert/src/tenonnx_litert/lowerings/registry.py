"""Registry of lowerings, and helpers for writing them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import tenonnx_standard as ops
from tenonnx.extend import DType, NotRepresentable, Op, Value, constant, dims, elements, static
from tenonnx_litert.builtins import elementwise, movement

Function = Callable[..., Any]

#: Lowerings by op, the best first: functions of the inputs and attributes that return the results, or raise
#: ``NotRepresentable`` for a call that they do not support.
LOWERINGS: dict[Op[Any], list[Function]] = {}

#: Ops on images. They are lowered first, between two Transpose nodes, which a later pass moves and cancels.
SPATIAL: set[Op[Any]] = set()

#: Maximum rank that all broadcasting kernels support.
MOST_BROADCAST = 4


def lowers(*lowered: Op[Any], spatial: bool = False) -> Callable[[Function], Function]:
    """Register a function as a lowering of the given ops."""

    def register(function: Function) -> Function:
        for each in lowered:
            LOWERINGS.setdefault(each, []).append(function)
            if spatial:
                SPATIAL.add(each)
        return function

    return register


def unless(wrong: bool, why: str) -> None:
    """Raise ``NotRepresentable`` with the reason ``why`` if ``wrong``."""
    if wrong:
        raise NotRepresentable(why)


def int32(contents: Any) -> Value:
    """An int32 constant."""
    return constant(np.clip(contents, np.iinfo(np.int32).min, np.iinfo(np.int32).max).astype(np.int32))


def narrow(value: Value) -> Value:
    """Cast positions or sizes to int32, clipped to its range."""
    if value.dtype is DType.int32:
        return value
    contents = static(value)
    if contents is not None:
        return int32(contents)
    if value.dtype is DType.int64 and value.symbolic_contents is None:
        low, high = (constant(np.asarray(n, np.int64)) for n in (-(2**31), 2**31 - 1))
        value = elementwise.maximum(elementwise.minimum(value, high), low)
    return elementwise.cast(value, out_data_type="int32")  # type: ignore[no-any-return]


def sizes(value: Value) -> list[int | None]:
    """The shape, with None for dynamic dims. Raises ``NotRepresentable`` for an unknown rank."""
    unless(value.shape is None, "the rank of an input is unknown")
    return [dim if isinstance(dim, int) else None for dim in value.shape]


def axes_of(axes: Value | None, rank: int) -> list[int]:
    """Static axes, counted from the front. Raises ``NotRepresentable`` if they are computed or absent."""
    contents = None if axes is None else static(axes)
    unless(contents is None, "the axes are not constant")
    return [int(axis) % rank for axis in np.reshape(contents, -1)]


def integers(value: Value, what: str) -> list[int]:
    """Static contents as a list. Raises ``NotRepresentable`` if they are computed."""
    contents = static(value)
    unless(contents is None, f"{what} is computed")
    return [int(n) for n in np.reshape(contents, -1)]


def reshaped(value: Value, shape: Sequence[Any]) -> Value:
    """Reshape ``value``. Static dims are numbers, dynamic dims int64 values."""
    known = [n if isinstance(n, int) else -1 for n in shape]
    if value.shape is not None and -1 not in known and list(value.shape) == known:
        return value
    if known.count(-1) <= 1 and not (-1 in known and 0 in known):
        return movement.reshape(value, int32(known))  # type: ignore[no-any-return]
    return movement.reshape(value, shape_vector(shape))  # type: ignore[no-any-return]


def shape_vector(shape: Sequence[Any]) -> Value:
    """Concatenate dims, numbers or values, to an int32 vector."""
    if all(isinstance(n, int) for n in shape):
        return int32(list(shape))
    parts = [int32([n]) if isinstance(n, int) else movement.reshape(narrow(n), int32([1])) for n in shape]
    return parts[0] if len(parts) == 1 else movement.concatenation(*parts, axis=0)  # type: ignore[no-any-return]


def result_dims(x: Value, shape: Value) -> list[Any]:
    """Dims after ONNX's Reshape: numbers if static, else values."""
    contents = elements(shape)
    unless(contents is None, "the length of the shape is unknown")
    result: list[Any] = []
    own = dims(x)
    for place, size in enumerate(contents):
        if isinstance(size, int):
            result.append(own[place] if size == 0 else size)
        else:
            result.append(ops.gather(shape, place, axis=0))
    return result


def as_floats(*values: Value | None) -> None:
    """Raise ``NotRepresentable`` unless all values are float32."""
    for value in values:
        unless(value is not None and value.dtype is not DType.float32, "the kernel takes float32 only")


def merged_axes(*values: Value) -> tuple[list[Value], list[Any]]:
    """Operands of a broadcast reshaped to fewer axes, and the dims of the result.

    Adjacent axes are merged if each operand has both or broadcasts along both. Raises ``NotRepresentable`` if too many
    axes remain, or if a dynamic dim may be 1 in one operand only.
    """
    rank = max(v.ndim for v in values)
    shapes = [[1] * (rank - v.ndim) + list(v.shape or ()) for v in values]
    full = [[1] * (rank - v.ndim) + dims(v) for v in values]
    result: list[Any] = []
    for axis in range(rank):
        longer = [k for k in range(len(values)) if shapes[k][axis] != 1]
        unless(len({str(shapes[k][axis]) for k in longer}) > 1, "operands of this rank have dynamic dims")
        unless(any(shapes[k][axis] is None for k in longer), "operands of this rank have dynamic dims")
        result.append(full[longer[0]][axis] if longer else 1)
    groups: list[list[int]] = []
    for axis in range(rank):
        pattern = [row[axis] != 1 for row in shapes]
        alike = groups and pattern == [any(row[k] != 1 for k in groups[-1]) for row in shapes]
        if groups and (not any(pattern) or alike):
            groups[-1].append(axis)
        else:
            groups.append([axis])
    unless(len(groups) > MOST_BROADCAST, f"the kernel broadcasts no more than {MOST_BROADCAST} axes")
    small = [[math.prod(row[k] for k in group) for group in groups] for row in full]
    return [reshaped(v, shape) for v, shape in zip(values, small, strict=True)], result


def broadcast(function: Function, *values: Value, **attributes: Any) -> Value:
    """Apply a builtin operator with broadcasting, with axes merged down to the rank that its kernel supports."""
    ranks = [v.ndim for v in values]
    same = len({tuple(map(str, v.shape)) for v in values}) == 1 and None not in values[0].shape
    if max(ranks) <= MOST_BROADCAST or same:
        return function(*values, **attributes)  # type: ignore[no-any-return]
    operands, shape = merged_axes(*values)
    return reshaped(function(*operands, **attributes), shape)
