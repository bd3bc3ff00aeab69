"""Hypothesis strategies for inputs: small arrays of moderate values.

Hypothesis draws and shrinks shapes and dtypes. For speed, contents come from a generator with one drawn seed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np
from hypothesis import strategies as st

from tenonnx.extend import DType, InvalidCall

Array: TypeAlias = np.ndarray[Any, Any]
Strategy: TypeAlias = st.SearchStrategy[Any]
Draw: TypeAlias = Callable[[Strategy], Any]

#: Minimum distance of values from the numbers in ``exclude_near``.
DISTANCE = 0.1


@st.composite
def _of(draw: Draw, drawn: Callable[[Draw], Any]) -> Any:
    """Draw from ``drawn``. One composite serves all strategies, since creating one reads source code, which is slow."""
    return drawn(draw)


_WORDS = ("", "a", "b", "ab", "Tenon", "onnx", "zwölf", "x y", "7", "-1")


def shapes(
    min_rank: int = 0, max_rank: int = 4, min_side: int = 1, max_side: int = 5
) -> st.SearchStrategy[tuple[int, ...]]:
    """Shapes, as tuples of ints, with ranks and axis lengths within the bounds (inclusive)."""

    def drawn(draw: Draw) -> tuple[int, ...]:
        rank = draw(st.integers(min_rank, max(min_rank, max_rank)))
        return tuple(draw(st.integers(min_side, max_side)) for _ in range(rank))

    return _of(drawn)


def tensors(
    dtype: Any = "float32",
    *,
    shape: Sequence[int] | Strategy | None = None,
    min_rank: int = 0,
    max_rank: int = 4,
    min_side: int = 1,
    max_side: int = 5,
    min_value: float = -4,
    max_value: float = 4,
    distinct: bool = False,
    exclude_near: Sequence[float] = (),
) -> st.SearchStrategy[Array]:
    """Arrays of ``dtype``, or of a dtype drawn from a list, with a given or drawn shape.

    With ``distinct`` no two elements are equal; the range of values is widened if necessary. Values differ by at least
    0.1 from the numbers in ``exclude_near``.
    """

    def drawn(draw: Draw) -> Array:
        kind = _draw_dtype(draw, dtype)
        sides = draw(shapes(min_rank, max_rank, min_side, max_side)) if shape is None else _given_shape(draw, shape)
        sides = _fitting(sides, kind) if distinct and shape is None else sides
        random = _random(draw)
        return contents(random, kind, sides, min_value, max_value, distinct=distinct, exclude_near=exclude_near)

    return _of(drawn)


def broadcastable(
    n: int,
    dtype: Any = "float32",
    *,
    min_rank: int = 0,
    max_rank: int = 4,
    min_side: int = 1,
    max_side: int = 5,
    **same: Any,
) -> st.SearchStrategy[list[Array]]:
    """Lists of ``n`` arrays of one dtype that broadcast together; further keywords are those of ``tensors``."""

    def drawn(draw: Draw) -> list[Array]:
        kind = _draw_dtype(draw, dtype)
        whole = draw(shapes(min_rank, max_rank, min_side, max_side))
        result = []
        for _ in range(n):
            rank = draw(st.one_of(st.just(len(whole)), st.integers(min_rank, len(whole))))
            ones = draw(st.integers(0, (1 << rank) - 1)) & draw(st.integers(0, (1 << rank) - 1))
            sides = tuple(1 if ones >> axis & 1 else side for axis, side in enumerate(whole[len(whole) - rank :]))
            result.append(draw(tensors(kind, shape=sides, **same)))
        return result

    return _of(drawn)


def axis_of(x: Array) -> st.SearchStrategy[int]:
    """Axes of an array, as nonnegative or negative ints."""
    if not x.ndim:
        raise InvalidCall("a scalar has no axis to draw", do="draw the array with min_rank=1")
    return st.integers(-x.ndim, x.ndim - 1)


def contents(
    random: np.random.Generator,
    dtype: DType,
    shape: Sequence[int],
    low: float = -4,
    high: float = 4,
    *,
    distinct: bool = False,
    exclude_near: Sequence[float] = (),
) -> Array:
    """Return random contents of a dtype and shape; the keywords are those of ``tensors``."""
    shape = tuple(shape)
    if dtype is DType.bool:
        return random.integers(0, 2, shape).astype(bool)
    if dtype is DType.string:
        return np.asarray(random.choice(np.asarray(_WORDS, dtype=object), shape), dtype=object).reshape(shape)
    if dtype.is_complex:
        real, imaginary = (contents(random, DType.float64, shape, low, high) for _ in range(2))
        return np.asarray(real + 1j * imaginary).astype(dtype.numpy)
    if distinct:
        return _distinct(random, dtype, shape, low, high, exclude_near)
    if dtype.is_integer:
        return _integers(random, dtype, shape, low, high, exclude_near)
    values = _away(np.round(random.uniform(low, high, shape), 4), exclude_near)
    return np.asarray(np.abs(values) if dtype is DType.float8e8m0 else values).astype(dtype.numpy)


def _integers(
    random: np.random.Generator,
    dtype: DType,
    shape: tuple[int, ...],
    low: float,
    high: float,
    excluded: Sequence[float],
) -> Array:
    least, greatest = _integer_range(dtype, low, high)
    wide = np.uint64 if dtype is DType.uint64 else np.int64
    values = np.asarray(random.integers(least, greatest, shape, wide, endpoint=True))
    for number in excluded:
        values = np.where(values == number, values + 1 if number < greatest else values - 1, values)
    return values.astype(dtype.numpy)


def _distinct(
    random: np.random.Generator,
    dtype: DType,
    shape: tuple[int, ...],
    low: float,
    high: float,
    excluded: Sequence[float],
) -> Array:
    size = math.prod(shape)
    while True:
        if dtype.is_integer:
            least, greatest = _integer_range(dtype, low, high)
            values = np.setdiff1d(np.arange(least, greatest + 1), np.asarray(excluded)).astype(dtype.numpy)
        else:
            values = np.unique(_away(np.linspace(low, high, 2 * size + 1), excluded).astype(dtype.numpy))
        if len(values) >= size:
            return np.asarray(random.permutation(values)[:size]).reshape(shape)
        wider = 2 * low - 1, 2 * high + 1
        if dtype.is_integer and _integer_range(dtype, *wider) == (least, greatest):
            raise InvalidCall(f"{dtype} has fewer than {size} distinct values", do="draw smaller shapes")
        low, high = wider


def _away(values: Any, excluded: Sequence[float]) -> Any:
    """Move values that are closer than ``DISTANCE`` to an excluded number."""
    for number in excluded:
        offset = values - number
        direction = np.where(offset < 0, -1.0, 1.0)
        values = np.where(np.abs(offset) < DISTANCE, values + direction * DISTANCE, values)
    return values


def _integer_range(dtype: DType, low: float, high: float) -> tuple[int, int]:
    width = dtype.bits
    least, greatest = (-(1 << width - 1), (1 << width - 1) - 1) if dtype.is_signed else (0, (1 << width) - 1)
    return max(least, math.ceil(low)), min(greatest, math.floor(high))


def _draw_dtype(draw: Draw, dtype: Any) -> DType:
    several = isinstance(dtype, list | tuple | set | frozenset)
    return DType.of(draw(st.sampled_from(list(dtype))) if several else dtype)


def _fitting(sides: tuple[int, ...], dtype: DType) -> tuple[int, ...]:
    """Halve the longest axes of a shape until an 8-bit dtype has enough distinct values."""
    while dtype.is_numeric and dtype.bits <= 8 and math.prod(sides) > 1 << dtype.bits - 1:
        longest = sides.index(max(sides))
        sides = (*sides[:longest], sides[longest] // 2, *sides[longest + 1 :])
    return sides


def _given_shape(draw: Draw, shape: Any) -> tuple[int, ...]:
    return tuple(draw(shape)) if isinstance(shape, st.SearchStrategy) else tuple(shape)


def _random(draw: Draw) -> np.random.Generator:
    return np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
