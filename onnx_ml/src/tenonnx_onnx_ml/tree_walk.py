"""Traversal of trees by rows: on arrays, and as ops."""

from __future__ import annotations

import functools
import math
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from tenonnx.extend import DType, Value, constant, dims
from tenonnx_onnx_ml.quickscorer import QuickScorer, quick_scorer
from tenonnx_onnx_ml.trees import Trees
from tenonnx_standard.casting import cast
from tenonnx_standard.float_classes import isnan
from tenonnx_standard.joining import concat
from tenonnx_standard.logic import less_or_equal, where
from tenonnx_standard.shapes import expand, reshape
from tenonnx_standard.slicing import gather_elements

Array = np.ndarray[Any, Any]

#: On little-endian machines, a comparison written into an integer's bytes is added without conversion.
_LITTLE = sys.byteorder == "little"

#: Number of (row, tree) pairs processed at once, whose state fits into the cache.
BLOCK = 1 << 15

#: A step of ``leaves_reached`` with few pairs costs as much as testing this many slots, or this many single steps in
#: Python.
TESTED_AHEAD, ONE_BY_ONE = 5000, 75

#: Cost of a lookup per feature, and of the preceding search shared by all trees, relative to a step of
#: ``leaves_reached``. For uneven trees, half of the steps are walked on average.
LOOK_UP, SEARCH = 0.3, 25

#: Lookup tables grow with the square of the number of trees; for this many they take about 40 MB.
MOST_TREES = 1024

#: Number of steps between checks for finished pairs, and the share of unfinished pairs up to which only these continue.
BETWEEN, MOST_GOING = 4, 0.6


def record(trees: Trees) -> Array:
    """The fields of each slot as one record, so that a single memory access reads them."""
    wide = trees.thresholds.dtype
    fields = {"names": ["feature", "following", "threshold"], "formats": ["i4", "i4", wide], "itemsize": 16}
    slots = np.empty(len(trees.features), np.dtype(fields))
    slots["feature"], slots["following"], slots["threshold"] = trees.features, trees.following, trees.thresholds
    return slots


def leaves_reached(trees: Trees, slots: Array, x: Array) -> Array:
    """The slot of the leaf that each row of ``x`` reaches in each tree, [trees, rows].

    Most leaves are less deep than the deepest one: once most pairs have reached a leaf, the others continue separately.
    """
    x = _with_lowered(trees, x)
    current = np.repeat(np.arange(trees.count, dtype=np.int32), len(x))
    return _walk_on(slots, x, current, _beginnings(trees, x), trees.depth).reshape(trees.count, len(x))


def leaves_by_tops(trees: Trees, slots: Array, upper: QuickScorer, x: Array) -> Array:
    """Result of ``leaves_reached``, with the tops of the trees evaluated by QuickScorer, and the rest by walking on."""
    reached = upper.passed(x)
    if upper.depth:
        x, flat = _with_lowered(trees, x), reached.reshape(-1)
        going = np.flatnonzero(upper.inner.take(flat, mode="clip"))
        flat[going] = _walk_on(slots, x, flat[going], _beginnings(trees, x)[going], upper.depth)
    return reached


def _beginnings(trees: Trees, x: Array) -> Array:
    """Offset of the row of each pair."""
    return np.tile(np.arange(len(x), dtype=np.int32) * np.int32(x.shape[1]), trees.count)


def _walk_on(slots: Array, x: Array, current: Array, first: Array, left: int) -> Array:
    """The leaves reached from the slots ``current`` in at most ``left`` steps."""
    flat, reached, places = x.reshape(-1), current, None
    walk = _walker(slots, flat, len(current))
    while left > 2 * BETWEEN:
        walk(current, first, BETWEEN)
        left -= BETWEEN
        before = current.copy()
        walk(current, first, 1)
        left -= 1
        moving = before != current
        going = np.count_nonzero(moving)
        if going > len(moving) * MOST_GOING:
            continue
        if places is not None:
            reached[places] = current
        places = np.flatnonzero(moving) if places is None else places[moving]
        current, first = current[moving], first[moving]
        walk = _walker(slots, flat, len(current))
        if not going:
            break
    walk(current, first, left)
    if places is not None:
        reached[places] = current
    return reached


def leaves_function(
    trees: Trees, slots: Array, upper: Callable[[], QuickScorer | None], rows: int
) -> Callable[[Array], Array]:
    """``leaves_reached`` as a function for a fixed number of rows, for repeated calls.

    For few rows, numpy's call overhead exceeds the work. A single row may instead be tested at all slots first, or walk
    in plain Python if trees have many more slots than it passes.
    """
    ahead = len(slots) / TESTED_AHEAD + trees.depth / 6
    single = trees.count * math.log2(len(slots) / trees.count) / ONE_BY_ONE
    if not trees.depth or rows * min(ahead, single) >= trees.depth:
        found = upper()
        return (
            functools.partial(leaves_by_tops, trees, slots, found)
            if found
            else functools.partial(leaves_reached, trees, slots)
        )
    leaves_of_row = _testing_ahead(trees) if ahead < single else _walking_in_python(trees)
    return lambda x: np.stack([leaves_of_row(row) for row in _with_lowered(trees, x)], axis=1)


def profitable_tops(trees: Trees) -> QuickScorer | None:
    """A QuickScorer for the tops of trees, if it is faster than the steps it replaces; else None."""
    each = LOOK_UP + SEARCH / trees.count
    least = len(np.unique(trees.features)) / 2  # if all features have copies
    if trees.count > MOST_TREES or least * each >= trees.depth:
        return None
    upper = quick_scorer(trees)
    return upper if len(upper.features) * each < trees.depth - upper.depth else None


def _testing_ahead(trees: Trees) -> Callable[[Array], Array]:
    roots, features = np.arange(trees.count), trees.features.astype(np.intp)
    above, thresholds = trees.following.astype(np.intp), trees.thresholds

    def leaves_of_row(row: Array) -> Array:
        following = above + (row.take(features, mode="clip") <= thresholds)
        current = roots
        for _ in range(trees.depth):
            current = following.take(current, mode="clip")
        return current

    return leaves_of_row


def _walking_in_python(trees: Trees) -> Callable[[Array], Array]:
    features, thresholds, following = trees.features.tolist(), trees.thresholds.tolist(), trees.following.tolist()

    def leaves_of_row(row: Array) -> Array:
        numbers, reached = row.tolist(), []
        for slot in range(trees.count):
            further = following[slot]
            while further != slot:
                slot = further + (numbers[features[slot]] <= thresholds[slot])
                further = following[slot]
            reached.append(slot)
        return np.array(reached)

    return leaves_of_row


def _with_lowered(trees: Trees, x: Array) -> Array:
    if not trees.lowered:
        return x
    part = x[:, : trees.lowered]
    return np.concatenate([np.where(np.isnan(part), -np.inf, part), x], axis=1, dtype=x.dtype)


def _walker(slots: Array, flat: Array, count: int) -> Callable[[Array, Array, int], None]:
    """A function that moves ``count`` pairs on by some steps, from their slots and the offsets of their rows."""
    here = np.empty(count, slots.dtype)
    features, following, thresholds = here["feature"], here["following"], here["threshold"]
    value, place, one = np.empty(count, flat.dtype), np.empty(count, np.int32), np.zeros(count, np.int32)
    holds = one.view(bool)[:: one.itemsize] if _LITTLE else np.empty(count, bool)

    def walk(current: Array, first: Array, steps: int) -> None:
        for _ in range(steps):
            slots.take(current, out=here, mode="clip")
            np.add(features, first, out=place)
            flat.take(place, out=value, mode="clip")
            np.less_equal(value, thresholds, out=holds)
            np.add(following, one if _LITTLE else holds, out=current)

    return walk


def leaves_by_ops(trees: Trees, X: Value) -> Value:
    """``leaves_reached`` for a value, flattened.

    Uses GatherElements on vectors, which runtimes do fastest: onnxruntime's Gather takes ten times as long per element.
    """
    x = X
    if trees.lowered:
        part = X[:, : trees.lowered]
        x = concat(where(isnan(part), float("-inf"), part), X, axis=1)
    features, following, thresholds = map(constant, (trees.features, trees.following, trees.thresholds))
    roots = constant(np.arange(trees.count, dtype=np.int32))
    current = reshape(expand(roots, [dims(X)[0], trees.count]), [-1])
    for _ in range(trees.depth):
        feature = reshape(gather_elements(features, current), [-1, trees.count])
        value = reshape(gather_elements(x, feature, axis=1), [-1])
        holds = less_or_equal(value, gather_elements(thresholds, current))
        current = gather_elements(following, current) + cast(holds, to=DType.int32)
    return current
