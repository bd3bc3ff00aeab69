"""Extreme inputs: full integer ranges, rounding ties, equal, small and offset elements, several special values."""

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

#: Scales, in rotation. Odd multiples of half a scale are rounding ties after a float32 division by the scale. They are
#: no ties after multiplication by the reciprocal (second scale), or after a float64 division (third scale).
SCALES = (0.5, 61 / 128, 0.7)

#: Largest multiple of half a scale, without and with integer operands; bytes of accumulator integers.
MULTIPLES, FACTORS, SUMS = 40, 4, 4

#: Share of the bounds of a range among its random integers.
ENDS = 0.25

#: Length of an axis whose indices need more than 8 bits.
ROOM = 300

#: Factor of small numbers; offset of others, whose squares leave float32 few digits.
LITTLE, FAR = 1e-4, 256.0


def extremes(case: Case, drawn: Call, expected: Outputs) -> Iterator[tuple[str, Call]]:
    """Yield the call with its integers or floats replaced by extreme ones, each with its name."""
    random = np.random.default_rng(zlib.crc32(one_line(case.op, drawn).encode()))
    given = {k: v for k, v in enumerate(drawn.inputs) if _is_plain(v) and not is_index(case.op, k)}
    floats = {k: v for k, v in given.items() if DType.of(v.dtype).is_float and DType.of(v.dtype).bits > 8}
    if floats and moves_data(case.op, drawn.attributes):
        yield ZEROS, _with(drawn, _zeros(floats, drawn.turn))
    if (call := _large_indices(case, drawn, random)) is not None:
        yield FAR_PLACES, call
    integers = {k: v for k, v in given.items() if v.dtype.name in INTEGERS}
    if integers:
        yield WHOLE_RANGE, _with(drawn, {k: _full_range(random, v) for k, v in integers.items()})
        yield (
            WHOLE_RANGE,
            _with(drawn, {k: _bounds(v, drawn.turn * (1 + k * (drawn.turn % 2))) for k, v in integers.items()}),
        )
        call = _with_other_integers(case, drawn, integers)
        if call is not None:
            yield WHOLE_RANGE, _with(call, {k: _full_range(random, call.inputs[k]) for k in integers})
        if len(integers) > 1:
            widest = max(integers, key=lambda k: integers[k].size)
            for each in filter(None, (drawn, call)):
                yield WHOLE_RANGE, _with(each, {widest: _full_range(random, each.inputs[widest])})
            first = (drawn.turn + 1) % len(integers)
            for each in filter(None, (drawn, call)):
                full = {k: np.full_like(each.inputs[k], np.iinfo(each.inputs[k].dtype).max) for k in integers}
                for place in [*integers][first : first + 1] if len(integers) > 2 else integers:
                    yield WHOLE_RANGE, _with(each, full | {place: _shift_counts(random, full[place])})
    if floats and any(isinstance(v, np.ndarray) and v.dtype.kind in "iub" for v in expected):
        first, *others = floats
        scale = SCALES[drawn.turn % len(SCALES)]
        halves = {k: np.full_like(floats[k], scale) for k in others}
        most = FACTORS if integers else MULTIPLES  # products with integers have to stay within the range of the result
        halves[first] = (random.integers(-most, most + 1, floats[first].shape) * (scale / 2)).astype(
            floats[first].dtype
        )
        sums = {k: v for k, v in integers.items() if v.dtype.itemsize >= SUMS and v.ndim}
        few = {k: random.integers(0 if v.dtype.kind == "u" else -9, 10, v.shape, v.dtype) for k, v in sums.items()}
        yield HALVES, _with(drawn, halves | few)
        if larger := larger_inputs(given, drawn.turn):
            yield FRESH, _with(drawn, larger | {k: _scaled(random, larger[k]) for k in floats if k in larger})
        if sums:
            yield BEYOND_HALVES, _with(drawn, _near_ties(random, floats, sums))
    yield EQUAL, _with(drawn, {k: _two_values(random, v) for k, v in (floats | integers).items()})
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
            yield OFFSET, _with(drawn, {place: floats[place] + several.dtype.type(FAR)})
        yield SEVERAL, _with(drawn, {place: several})
        yield ROWS, _with(drawn, {place: np.full_like(several, np.nan)})


def _scaled(random: np.random.Generator, array: Array) -> Array:
    """Multiply each element by a random factor between 0.5 and 1."""
    return np.asarray(array * random.uniform(0.5, 1, array.shape)).astype(array.dtype)


def _zeros(floats: dict[int, Array], turn: int) -> dict[int, Array]:
    """Replace inputs by zeros of one sign each: ONNX does not define which of two zeros is greater."""
    return {k: np.full_like(v, 0.0 if (place + turn) % 2 else -0.0) for place, (k, v) in enumerate(floats.items())}


def _near_ties(random: np.random.Generator, floats: dict[int, Array], sums: dict[int, Array]) -> dict[int, Array]:
    """Integers that are next to a rounding tie after scaling by 2 ** -23, and that float32 rounds to the tie."""
    odd = {k: 2 * random.integers(0, MULTIPLES, v.shape) + 1 for k, v in sums.items()}
    beyond = {k: ((n << 22) + random.choice([-1, 1], n.shape)).astype(sums[k].dtype) for k, n in odd.items()}
    return beyond | {k: np.full_like(v, 2.0**-23) for k, v in floats.items()}


def _large_indices(case: Case, drawn: Call, random: np.random.Generator) -> Call | None:
    """Return the call with an axis longer than 255 and indices into it; None if it has no indices or is rejected."""
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
    call = _with(drawn, {largest: long, chosen: far.astype(drawn.inputs[chosen].dtype)})
    return call if long.size <= ROOM * MULTIPLES and is_admitted(case.op, call) else None


def _is_plain(contents: Any) -> bool:
    return isinstance(contents, np.ndarray) and contents.size > 0 and contents.dtype != object


def _full_range(random: np.random.Generator, array: Array) -> Array:
    """Random integers of the full range of the dtype, with a share of its bounds, -1, 0 and 1."""
    info = np.iinfo(array.dtype)
    found = random.integers(info.min, info.max, array.shape, array.dtype, endpoint=True)
    chosen = random.random(array.shape) < ENDS
    return np.asarray(np.where(chosen, random.choice(_bounds_of(array.dtype), array.shape), found))


def _bounds(array: Array, first: int) -> Array:
    """Fill with the bounds of the dtype in rotation, beginning at position ``first``."""
    return np.resize(np.roll(_bounds_of(array.dtype), -first), array.shape)


def _bounds_of(dtype: np.dtype[Any]) -> Array:
    """Bounds of an integer dtype, and -1, 0 and 1."""
    info = np.iinfo(dtype)
    return np.array([info.min, -1 if info.min else 2, info.max, info.max - 1, 0, 1], dtype)


def _shift_counts(random: np.random.Generator, array: Array) -> Array:
    """Shift counts around the bit width of the dtype."""
    bits = 8 * array.dtype.itemsize
    return np.asarray(random.choice(np.array([bits, bits - 1, bits + 1], array.dtype), array.shape))


def _two_values(random: np.random.Generator, array: Array) -> Array:
    """Replace each element by one of the first two, at random."""
    return np.asarray(array.reshape(-1)[random.integers(0, min(2, array.size), array.shape)])


def _with_other_integers(case: Case, drawn: Call, integers: dict[int, Array]) -> Call | None:
    """Return the call with its first integer dtype converted to another that the op accepts, in rotation."""
    first = next(iter(integers.values())).dtype
    for name in (INTEGERS[(drawn.turn + place) % len(INTEGERS)] for place in range(len(INTEGERS))):
        call = _with(drawn, {k: as_dtype(v, name) for k, v in integers.items() if v.dtype == first})
        if name != first.name and is_admitted(case.op, call):
            return call
    return None


def _with(drawn: Call, changed: dict[int, Any]) -> Call:
    return replace(drawn, inputs=tuple(changed.get(k, v) for k, v in enumerate(drawn.inputs)))
