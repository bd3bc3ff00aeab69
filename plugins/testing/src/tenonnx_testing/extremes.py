"""Whole ranges of integers, exact halves, equal and small elements, and several special values at once."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, TypeAlias

import numpy as np

from tenonnx.extend import DType, moves_data
from tenonnx_testing.cases import Call, Case
from tenonnx_testing.mutations import as_dtype, is_admitted
from tenonnx_testing.repro import one_line
from tenonnx_testing.run import Outputs, is_index
from tenonnx_testing.variations import larger_inputs

Array: TypeAlias = np.ndarray[Any, Any]

WHOLE_RANGE, HALVES, BEYOND_HALVES, EQUAL, SMALL, SMALL_ONE, OFFSET, SEVERAL, ROWS, ZEROS, FAR_PLACES, FRESH = (
    "integers of the whole range",
    "exact halves",
    "integers that float32 rounds to exact halves",
    "equal elements",
    "small numbers alone",
    "small numbers, and another does not",
    "numbers far from zero alone",
    "several special values",
    "nothing but NaN",
    "zeros alone, of one sign in each input",
    "places beyond 255",
    "many different numbers",
)

INTEGERS = ("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64")

#: Scales, in turn: of multiples of half of one, each second one is halfway between two integers after a division in
#: float32. By the inverse of the second scale it is not, and neither is it by the third one in float64.
SCALES = (0.5, 61 / 128, 0.7)

#: The largest multiple of half a scale, alone and as a factor of integers; bytes of integers that are sums of products.
MULTIPLES, FACTORS, SUMS = 40, 4, 4

#: The share of the ends of a range among its numbers.
ENDS = 0.25

#: Length of an axis whose places need more than 8 bits.
ROOM = 300

#: Factor of small numbers; distance of others from zero, whose squares leave float32 few digits.
LITTLE, FAR = 1e-4, 256.0


def extremes(case: Case, drawn: Call, expected: Outputs) -> Iterator[tuple[str, Call]]:
    """The call with all of its integers or floats replaced by those at which formulas differ."""
    random = np.random.default_rng(zlib.crc32(one_line(case.op, drawn).encode()))
    given = {k: v for k, v in enumerate(drawn.inputs) if _is_plain(v) and not is_index(case.op, k)}
    floats = {k: v for k, v in given.items() if DType.of(v.dtype).is_float and DType.of(v.dtype).bits > 8}
    if floats and moves_data(case.op, drawn.attributes):
        yield ZEROS, _with(drawn, _zeros(floats, drawn.turn))
    if (there := _far_places(case, drawn, random)) is not None:
        yield FAR_PLACES, there
    integers = {k: v for k, v in given.items() if v.dtype.name in INTEGERS}
    if integers:
        yield WHOLE_RANGE, _with(drawn, {k: _of_whole_range(random, v) for k, v in integers.items()})
        yield (
            WHOLE_RANGE,
            _with(drawn, {k: _ends(v, drawn.turn * (1 + k * (drawn.turn % 2))) for k, v in integers.items()}),
        )
        there = _of_another_kind(case, drawn, integers)
        if there is not None:
            yield WHOLE_RANGE, _with(there, {k: _of_whole_range(random, there.inputs[k]) for k in integers})
        if len(integers) > 1:
            widest = max(integers, key=lambda k: integers[k].size)
            for each in filter(None, (drawn, there)):
                yield WHOLE_RANGE, _with(each, {widest: _of_whole_range(random, each.inputs[widest])})
            place = [*integers][(drawn.turn + 1) % len(integers)]
            for each in filter(None, (drawn, there)):
                full = {k: np.full_like(each.inputs[k], np.iinfo(each.inputs[k].dtype).max) for k in integers}
                yield WHOLE_RANGE, _with(each, full | {place: _widths(random, full[place])})
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
        if larger := larger_inputs(given, drawn.turn):
            yield FRESH, _with(drawn, larger | {k: _scaled(random, larger[k]) for k in floats if k in larger})
        if sums:
            yield BEYOND_HALVES, _with(drawn, _beyond_halves(random, floats, sums))
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


def _scaled(random: np.random.Generator, array: Array) -> Array:
    """Each element by a random share of itself."""
    return np.asarray(array * random.uniform(0.5, 1, array.shape)).astype(array.dtype)


def _zeros(floats: dict[int, Array], turn: int) -> dict[int, Array]:
    """Zeros alone, of one sign in each input: of two zeros, ONNX does not say which is greater."""
    return {k: np.full_like(v, 0.0 if (place + turn) % 2 else -0.0) for place, (k, v) in enumerate(floats.items())}


def _beyond_halves(random: np.random.Generator, floats: dict[int, Array], sums: dict[int, Array]) -> dict[int, Array]:
    """Integers whose products with a power of two are next to halves, which float32 takes for halves."""
    odd = {k: 2 * random.integers(0, MULTIPLES, v.shape) + 1 for k, v in sums.items()}
    beyond = {k: ((n << 22) + random.choice([-1, 1], n.shape)).astype(sums[k].dtype) for k, n in odd.items()}
    return beyond | {k: np.full_like(v, 2.0**-23) for k, v in floats.items()}


def _far_places(case: Case, drawn: Call, random: np.random.Generator) -> Call | None:
    """The call with an axis of so many elements that its places need more than 8 bits, and with such places."""
    places = [k for k, v in enumerate(drawn.inputs) if _is_plain(v) and v.dtype.kind in "iu" and is_index(case.op, k)]
    given = {k: v for k, v in enumerate(drawn.inputs) if _is_plain(v) and v.ndim and k not in places}
    if not places or not given or any(isinstance(v, list | dict) for v in drawn.inputs):
        return None
    largest = max(given, key=lambda k: given[k].size)
    axis = drawn.turn % given[largest].ndim
    long = np.take(given[largest], np.arange(ROOM) % given[largest].shape[axis], axis)
    chosen = places[drawn.turn % len(places)]
    low = 0 if drawn.inputs[chosen].dtype.kind == "u" or (drawn.inputs[chosen] >= 0).all() else -ROOM
    far = random.integers(low, ROOM, drawn.inputs[chosen].shape)
    there = _with(drawn, {largest: long, chosen: far.astype(drawn.inputs[chosen].dtype)})
    return there if long.size <= ROOM * MULTIPLES and is_admitted(case.op, there) else None


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


def _widths(random: np.random.Generator, array: Array) -> Array:
    """The number of bits of a dtype, one less and one more, as counts of a shift."""
    bits = 8 * array.dtype.itemsize
    return np.asarray(random.choice(np.array([bits, bits - 1, bits + 1], array.dtype), array.shape))


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
