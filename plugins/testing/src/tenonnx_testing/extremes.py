"""Whole ranges of integers, exact halves, equal and small elements, and several special values at once."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, TypeAlias

import numpy as np

from tenonnx.extend import DType
from tenonnx_testing.cases import Call, Case
from tenonnx_testing.mutations import as_dtype, is_admitted
from tenonnx_testing.repro import one_line
from tenonnx_testing.run import Outputs, is_index

Array: TypeAlias = np.ndarray[Any, Any]

WHOLE_RANGE, HALVES, EQUAL, SMALL, SMALL_ONE, OFFSET, SEVERAL, ROWS = (
    "integers of the whole range",
    "exact halves",
    "equal elements",
    "small numbers alone",
    "small numbers, and another does not",
    "numbers far from zero alone",
    "several special values",
    "nothing but NaN",
)

INTEGERS = ("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64")

#: Scales, in turn: of multiples of half of one, each second one is halfway between two integers after a division, and
#: by the inverse of the second scale, which is not exact, it is not.
SCALES = (0.5, 0.375)

#: The largest multiple of half a scale, alone and as a factor of integers; bytes of integers that are sums of products.
MULTIPLES, FACTORS, SUMS = 40, 4, 4

#: The share of the ends of a range among its numbers.
ENDS = 0.25

#: Factor of small numbers; distance of others from zero, whose squares leave float32 few digits.
LITTLE, FAR = 1e-4, 256.0


def extremes(case: Case, drawn: Call, expected: Outputs) -> Iterator[tuple[str, Call]]:
    """The call with all of its integers or floats replaced by those at which formulas differ."""
    random = np.random.default_rng(zlib.crc32(one_line(case.op, drawn).encode()))
    given = {k: v for k, v in enumerate(drawn.inputs) if _is_plain(v) and not is_index(case.op, k)}
    floats = {k: v for k, v in given.items() if DType.of(v.dtype).is_float and DType.of(v.dtype).bits > 8}
    integers = {k: v for k, v in given.items() if v.dtype.name in INTEGERS}
    if integers:
        yield WHOLE_RANGE, _with(drawn, {k: _of_whole_range(random, v) for k, v in integers.items()})
        yield (
            WHOLE_RANGE,
            _with(drawn, {k: _ends(v, drawn.turn * (1 + k * (drawn.turn % 2))) for k, v in integers.items()}),
        )
        if len(integers) > 1:
            place = [*integers][(drawn.turn + 1) % len(integers)]
            full = {k: np.full_like(v, np.iinfo(v.dtype).max) for k, v in integers.items()}
            yield WHOLE_RANGE, _with(drawn, full | {place: _widths(integers[place])})
        there = _of_another_kind(case, drawn, integers)
        if there is not None:
            yield WHOLE_RANGE, _with(there, {k: _of_whole_range(random, there.inputs[k]) for k in integers})
    if floats and any(isinstance(v, np.ndarray) and v.dtype.kind in "iub" for v in expected):
        first, *others = floats
        scale = SCALES[drawn.turn % len(SCALES)]
        halves = {k: np.full_like(floats[k], scale) for k in others}
        most = FACTORS if integers else MULTIPLES  # a product with integers is to be within the range of the result
        halves[first] = (random.integers(-most, most + 1, floats[first].shape) * (scale / 2)).astype(
            floats[first].dtype
        )
        sums = {k: v for k, v in integers.items() if v.dtype.itemsize >= SUMS and v.ndim}
        few = {k: random.integers(0 if v.dtype.kind == "u" else -9, 10, v.shape, v.dtype) for k, v in sums.items()}
        yield HALVES, _with(drawn, halves | few)
    yield EQUAL, _with(drawn, {k: _of_two(random, v) for k, v in (floats | integers).items()})
    if floats:
        place = max(floats, key=lambda k: floats[k].size)
        several = floats[place].copy()
        special = np.array([np.nan, np.inf, np.nan, -np.inf, 0.0]).astype(several.dtype)
        places = random.permutation(several.size)[: max(1, several.size // 2)]
        several.reshape(-1)[places] = np.resize(special, places.size)
        yield SMALL, _with(drawn, {k: (v * LITTLE).astype(v.dtype) for k, v in floats.items()})
        if len(floats) > 1:
            one = [*floats][drawn.turn % len(floats)]
            yield SMALL_ONE, _with(drawn, {one: (floats[one] * LITTLE).astype(floats[one].dtype)})
        if several.dtype == np.float32:
            yield OFFSET, _with(drawn, {place: several + several.dtype.type(FAR)})
        yield SEVERAL, _with(drawn, {place: several})
        yield ROWS, _with(drawn, {place: np.full_like(several, np.nan)})


def _is_plain(contents: Any) -> bool:
    return isinstance(contents, np.ndarray) and contents.size > 0 and contents.dtype != object


def _of_whole_range(random: np.random.Generator, array: Array) -> Array:
    """Random integers of all of the dtype, among them its least and greatest, minus one, zero and one."""
    info = np.iinfo(array.dtype)
    found = random.integers(info.min, info.max, array.shape, array.dtype, endpoint=True)
    chosen = random.random(array.shape) < ENDS
    return np.asarray(np.where(chosen, random.choice(_ends_of(array.dtype), array.shape), found))


def _ends(array: Array, first: int) -> Array:
    """The ends of a dtype's range one after the other, beginning with one of them."""
    return np.resize(np.roll(_ends_of(array.dtype), -first), array.shape)


def _ends_of(dtype: np.dtype[Any]) -> Array:
    """The least and greatest integers of a dtype, minus one, zero and one."""
    info = np.iinfo(dtype)
    return np.array([info.min, -1 if info.min else 2, info.max, info.max - 1, 0, 1], dtype)


def _widths(array: Array) -> Array:
    """The number of bits of a dtype, one less and one more, as counts of a shift."""
    bits = 8 * array.dtype.itemsize
    return np.resize(np.array([bits, bits - 1, bits + 1], array.dtype), array.shape)


def _of_two(random: np.random.Generator, array: Array) -> Array:
    """Elements that are each one of the first two."""
    return np.asarray(array.reshape(-1)[random.integers(0, min(2, array.size), array.shape)])


def _of_another_kind(case: Case, drawn: Call, integers: dict[int, Array]) -> Call | None:
    """The call with its first kind of integers as another kind that the op takes, of those in turn."""
    first = next(iter(integers.values())).dtype
    for name in (INTEGERS[(drawn.turn + place) % len(INTEGERS)] for place in range(len(INTEGERS))):
        there = _with(drawn, {k: as_dtype(v, name) for k, v in integers.items() if v.dtype == first})
        if name != first.name and is_admitted(case.op, there):
            return there
    return None


def _with(drawn: Call, changed: dict[int, Any]) -> Call:
    return replace(drawn, inputs=tuple(changed.get(k, v) for k, v in enumerate(drawn.inputs)))
