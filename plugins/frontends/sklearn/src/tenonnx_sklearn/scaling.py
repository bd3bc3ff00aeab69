"""Folding scaling into tree thresholds, exactly, and into weights where no precision is lost."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import numpy as np

from tenonnx.extend import Value

Array = np.ndarray[Any, Any]

#: Maximum offset of a column, relative to its scale, for folding into weights: loses two digits of float32 at most.
_NEAR = 4.0


@dataclass(frozen=True)
class Scaling:
    """Scaling of each column: ``rows * factor + shift``, as computed by ``transform`` of the estimator.

    ``transform`` is monotonically increasing in each column. ``factor`` is None if it is not linear.
    """

    rows: Value
    transform: Callable[[Array], Array]
    factor: Array | None = None
    shift: Array | None = None


_scaled: ContextVar[dict[int, tuple[Value, Scaling]] | None] = ContextVar("scaled", default=None)
_exactly: ContextVar[bool] = ContextVar("exactly", default=False)


@contextmanager
def remembered(exactly: bool = False) -> Iterator[None]:
    """Record scalings within the context; ``exactly`` if rows are scaled in float64."""
    token, other = _scaled.set({}), _exactly.set(exactly)
    try:
        yield
    finally:
        _scaled.reset(token)
        _exactly.reset(other)


def remember(value: Value, scaling: Scaling) -> Value:
    """Record the scaling of ``value``, so that readers may use the unscaled rows; unused scalings are pruned."""
    scalings = _scaled.get()
    if scalings is not None and (scaling.factor is None or (np.asarray(scaling.factor) > 0).all()):
        scalings[id(value)] = value, scaling
    return value


def _of(value: Value) -> Scaling | None:
    held = (_scaled.get() or {}).get(id(value))
    return None if held is None else held[1]


def before_scaling(X: Value) -> tuple[Value, Callable[[Array], Array] | None]:
    """The rows before all scaling, and the composed transform."""
    steps: list[Callable[[Array], Array]] = []
    exactly = _exactly.get()
    while (found := _of(X)) is not None:
        steps.insert(0, found.transform)
        X = found.rows

    def transform(rows: Array) -> Array:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            rows = rows.astype(np.float64) if exactly else rows
            for step in steps:
                rows = np.asarray(step(rows))
        return rows

    return X, transform if steps else None


def absorbed(X: Value, weights: Array, bias: Array) -> tuple[Value, Array, Array]:
    """Unscaled rows with weights and bias of the same linear function; or all unchanged."""
    found = _of(X)
    if found is None or found.factor is None or np.abs(found.shift).max(initial=0) > _NEAR:
        return X, weights, bias
    weights = np.asarray(weights, np.float64)
    return absorbed(found.rows, weights * found.factor, np.asarray(bias, np.float64) + weights @ found.shift)


def thresholds_before(transform: Callable[[Array], Array], features: Array, thresholds: Array, width: int) -> Array:
    """The largest numbers, of the same dtype, that ``transform`` maps to at most ``thresholds``, by column."""
    bounds = np.stack([features.astype(np.float64), thresholds.astype(np.float64)])
    (columns, limits), back = np.unique(bounds, axis=1, return_inverse=True)
    columns, place, dtype = columns.astype(int), np.arange(len(limits)), thresholds.dtype.type

    def is_below(ordered: Array) -> Array:
        rows = np.zeros((len(limits), width), dtype)
        rows[place, columns] = _number(ordered, dtype)
        with np.errstate(over="ignore"):
            return np.asarray(transform(rows)[place, columns] <= limits)

    greatest = np.full(len(limits), np.finfo(dtype).max)
    low, high = _ordered(-greatest), _ordered(greatest)
    none = ~is_below(low)
    for _ in range(np.finfo(dtype).bits):
        middle = (low | high) - ((low ^ high) >> 1)  # the midpoint, rounded up
        below = is_below(middle)
        low, high = np.where(below, middle, low), np.where(below, high, middle - 1)
    for next_ones in [np.minimum(low + step, _ordered(greatest)) for step in range(1, 9)]:
        low = np.where(is_below(next_ones), next_ones, low)  # computed powers may decrease from one number to the next
    found = np.where(none, dtype(-np.inf), np.where(np.isposinf(limits), dtype(np.inf), _number(low, dtype)))
    return np.asarray(found[back.reshape(-1)])


def _ordered(numbers: Array) -> Array:
    """Map floats to integers, preserving order and adjacency."""
    bits = np.abs(numbers).view(f"i{numbers.itemsize}").astype(np.int64)
    return np.where(np.signbit(numbers), -bits, bits)


def _number(ordered: Array, dtype: Any) -> Array:
    size = np.abs(ordered).astype(f"i{np.dtype(dtype).itemsize}").view(dtype)
    return np.where(ordered < 0, -size, size)
