"""Whole ranges of integers, exact halves, and several special values at once."""

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

WHOLE_RANGE, HALVES, SEVERAL, ROWS = (
    "integers of the whole range",
    "exact halves",
    "several special values",
    "nothing but NaN",
)

INTEGERS = ("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64")

#: A power of two: numbers over it are exact, and those halfway between two integers are halfway after it, too.
SCALE = 0.5

#: Multiples of so much are planted beside the scale: every second one is a tie.
STEP = 0.25


def extremes(case: Case, drawn: Call, expected: Outputs) -> Iterator[tuple[str, Call]]:
    """The call with all of its integers or floats replaced by those at which formulas differ."""
    random = np.random.default_rng(zlib.crc32(one_line(case.op, drawn).encode()))
    given = {k: v for k, v in enumerate(drawn.inputs) if _is_plain(v) and not is_index(case.op, k)}
    floats = {k: v for k, v in given.items() if DType.of(v.dtype).is_float and DType.of(v.dtype).bits > 8}
    integers = {k: v for k, v in given.items() if v.dtype.name in INTEGERS}
    if integers:
        yield WHOLE_RANGE, _with(drawn, {k: _of_whole_range(random, v) for k, v in integers.items()})
        other = INTEGERS[drawn.turn % len(INTEGERS)]
        first = next(iter(integers.values())).dtype
        there = _with(drawn, {k: as_dtype(v, other) for k, v in integers.items() if v.dtype == first})
        if is_admitted(case.op, there):
            yield WHOLE_RANGE, _with(there, {k: _of_whole_range(random, there.inputs[k]) for k in integers})
    if floats and any(isinstance(v, np.ndarray) and v.dtype.kind in "iub" for v in expected):
        first, *others = floats
        halves = {k: np.full_like(floats[k], SCALE) for k in others}
        halves[first] = (random.integers(-40, 41, floats[first].shape) * STEP).astype(floats[first].dtype)
        yield HALVES, _with(drawn, halves)
    if floats:
        place = max(floats, key=lambda k: floats[k].size)
        several = floats[place].copy()
        special = np.array([np.nan, np.inf, np.nan, -np.inf, 0.0]).astype(several.dtype)
        places = random.permutation(several.size)[: max(1, several.size // 2)]
        several.reshape(-1)[places] = np.resize(special, places.size)
        yield SEVERAL, _with(drawn, {place: several})
        yield ROWS, _with(drawn, {place: np.full_like(several, np.nan)})


def _is_plain(contents: Any) -> bool:
    return isinstance(contents, np.ndarray) and contents.size > 0 and contents.dtype != object


def _of_whole_range(random: np.random.Generator, array: Array) -> Array:
    """Random integers of all of the dtype, among them its least and greatest, minus one, zero and one."""
    info = np.iinfo(array.dtype)
    found = random.integers(info.min, info.max, array.shape, array.dtype, endpoint=True)
    ends = np.array([info.min, info.max, info.max - 1, 0, 1, -1 if info.min else 2], dtype=object)
    chosen = random.random(array.shape) < STEP
    return np.asarray(np.where(chosen, random.choice(ends, array.shape), found.astype(object))).astype(array.dtype)


def _with(drawn: Call, changed: dict[int, Any]) -> Call:
    return replace(drawn, inputs=tuple(changed.get(k, v) for k, v in enumerate(drawn.inputs)))
