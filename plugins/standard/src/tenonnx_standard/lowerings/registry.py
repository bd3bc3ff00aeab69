"""The table of lowerings, and conditions on values."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import tenonnx_standard as ops
from tenonnx.extend import DType, NotRepresentable, Op, Value, constant

Function = Callable[..., Any]

#: For each op, pairs of an accuracy class and a function.
LOWERINGS: dict[Op[Any], list[tuple[str, Function]]] = {}


def lowering(op: Op[Any], accuracy: str = "exact") -> Callable[[Function], Function]:
    """Register a lowering of ``op`` for targets with a list of supported ops."""

    def register(function: Function) -> Function:
        LOWERINGS.setdefault(op, []).append((accuracy, function))
        return function

    return register


def sizes(value: Value) -> tuple[int, ...]:
    """The static shape. Raises ``NotRepresentable`` if a dim is unknown."""
    if value.shape is None or not all(isinstance(dim, int) for dim in value.shape):
        raise NotRepresentable(f'"{value.name}" has symbolic or unknown dims')
    return tuple(value.shape)


def numbers(value: Value | None) -> Any:
    """The contents as an array. Raises ``NotRepresentable`` for a value that is not constant."""
    if value is None or value.data is None:
        raise NotRepresentable("an input is computed, and not a constant")
    return value.data.array()


def like(value: Value, contents: Any) -> Value:
    """A constant with the element type of ``value``."""
    return constant(np.asarray(contents).astype(value.dtype.numpy), value.dtype)


def integers(contents: Sequence[int]) -> Value:
    return constant(np.asarray(contents, np.int64))


def reshaped(value: Value, dims: Sequence[Any]) -> Value:
    """``value`` reshaped to ``dims``, of which one may be symbolic; unchanged if it has these dims."""
    if value.shape is not None and list(value.shape) == list(dims):
        return value
    known = [dim if isinstance(dim, int) else -1 for dim in dims]
    if known.count(-1) > 1 or (-1 in known and 0 in known):
        raise NotRepresentable("several dims are symbolic or unknown")
    return ops.reshape(value, integers(known))  # type: ignore[no-any-return]


def cut(value: Value, axis: int, start: int, end: int, step: int = 1) -> Value:
    """The elements of an axis from ``start`` up to ``end``."""
    return ops.slice_(value, integers([start]), integers([end]), integers([axis]), integers([step]))  # type: ignore[no-any-return]


def joined(values: Sequence[Value], axis: int) -> Value:
    return values[0] if len(values) == 1 else ops.concat(*values, axis=axis)  # type: ignore[no-any-return]


def of_floats(*values: Value | None) -> None:
    """Raise ``NotRepresentable`` unless all values are floating-point."""
    if not all(value is None or value.dtype.is_float for value in values):
        raise NotRepresentable("an input does not hold floating-point numbers")


def not_of_half(value: Value) -> None:
    """Raise ``NotRepresentable`` for float16, in which intermediate results of ordinary values overflow."""
    if value.dtype is DType.float16:
        raise NotRepresentable("an intermediate result would overflow in float16")


def count(dims: Sequence[int], most: int = 256) -> int:
    """The product of dims. Raises ``NotRepresentable`` if one node for each would be too many."""
    result = math.prod(dims)
    if not 0 < result <= most:
        raise NotRepresentable(f"the lowering takes {result} nodes")
    return result


def within(axis: int, rank: int) -> int:
    return axis + rank if axis < 0 else axis


def unless(wrong: bool, why: str = "the lowering does not apply") -> None:
    """Raise ``NotRepresentable`` if ``wrong``."""
    if wrong:
        raise NotRepresentable(why)
