"""Ranges of activations, found on data: by their extremes, a percentile, the least entropy lost or the least error."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from tenonnx.extend import DType, Graph, InvalidCall
from tenonnx.extend.backends import Program, compile_graph
from tenonnx.extend.transforms import copy_graph
from tenonnx_quantized.tuning.quantized_tensor import encode, parameters

Array = np.ndarray[Any, Any]
Batch = Mapping[str, Any]

#: How finely the values of an activation are counted.
BINS = 2048

#: The part of all values that the range of method ``percentile`` holds.
PERCENTILE = 0.9999


@dataclass(frozen=True, slots=True)
class Observed:
    """Observations of a float graph: the range of each watched value over all batches, its contents in the
    first one, and every output of the graph, batch by batch."""

    ranges: dict[str, tuple[float, float]]
    first: dict[str, Array]
    outputs: dict[str, list[Array]]


def values_of(graph: Graph, names: Sequence[str], backend: str) -> Program:
    """A program that gives these values of a graph."""
    watched = copy_graph(graph)
    values = {value.name: value for value in watched.values()}
    watched.outputs = [values[name] for name in names]
    return compile_graph(watched, backend)


def observe(
    graph: Graph,
    names: Sequence[str],
    batches: Iterable[Batch],
    method: str,
    backend: str = "auto",
    *,
    dtype: DType = DType.uint8,
    symmetric: bool = False,
) -> Observed:
    """Run a graph over all batches; returns the ranges of ``names`` by a method of ``METHODS``, for a type.

    The batches are gone through twice where values have to be counted. Raises ``InvalidCall`` without a batch.
    """
    batches = list(batches)
    if method not in METHODS:
        raise InvalidCall("unknown calibration method", given=method, available=", ".join(METHODS))
    if not batches:
        raise InvalidCall("calibration got no data", do="give one batch or more")
    outputs: dict[str, list[Array]] = {value.name: [] for value in graph.outputs}
    program = values_of(graph, list(dict.fromkeys((*outputs, *names))), backend)
    low, high = dict.fromkeys(names, np.inf), dict.fromkeys(names, -np.inf)
    first: dict[str, Array] = {}
    for batch in batches:
        found = program(batch)
        for name in names:
            if found[name].size:
                low[name] = min(low[name], float(found[name].min()))
                high[name] = max(high[name], float(found[name].max()))
        for name, parts in outputs.items():
            parts.append(found[name])
        first = first or {name: found[name] for name in names}
    ranges = {name: (min(low[name], 0.0), max(high[name], 0.0)) for name in names}
    choose = METHODS[method]
    if choose is not None and names:
        counts = {name: np.zeros(BINS, np.int64) for name in names}
        for batch in batches:
            found = program(batch)
            for name in names:
                counts[name] += np.histogram(found[name], BINS, ranges[name])[0]
        rounded = partial(_rounded, dtype=dtype, symmetric=symmetric)
        ranges |= {n: choose(counts[n], *ranges[n], rounded) for n in names if ranges[n][0] < ranges[n][1]}
    return Observed(ranges, first, outputs)


# ----- how a range is chosen from counts ------------------------------------------------------------------------------


#: Numbers as the quantized values of a range stand for them.
Rounding = Callable[[Array, float, float], Array]


def _rounded(numbers: Array, low: float, high: float, *, dtype: DType, symmetric: bool) -> Array:
    return encode(numbers, parameters(low, high, dtype, symmetric=symmetric), None).numbers()


def _percentile(counts: Array, low: float, high: float, rounded: Rounding) -> tuple[float, float]:
    """The range that leaves out as many values on either side."""
    edges, share = np.linspace(low, high, BINS + 1), np.cumsum(counts) / counts.sum()
    out = (1 - PERCENTILE) / 2
    return float(edges[np.searchsorted(share, out)]), float(edges[np.searchsorted(share, 1 - out) + 1])


def _candidates(low: float, high: float) -> list[tuple[float, float]]:
    """The range, cut by more and more on both sides."""
    return [(low * part, high * part) for part in np.linspace(1.0, 0.2, 81)]


def _least_error(counts: Array, low: float, high: float, rounded: Rounding) -> tuple[float, float]:
    """The cut range with the least mean square error."""
    edges = np.linspace(low, high, BINS + 1)
    centers = (edges[1:] + edges[:-1]) / 2
    return min(
        _candidates(low, high), key=lambda each: float((counts * (centers - rounded(centers, *each)) ** 2).sum())
    )


def _least_entropy(counts: Array, low: float, high: float, rounded: Rounding) -> tuple[float, float]:
    """The cut range that loses the least information on the distribution of the values (Kullback and Leibler 1951)."""
    edges = np.linspace(low, high, BINS + 1)
    centers = (edges[1:] + edges[:-1]) / 2
    best, kept = np.inf, (low, high)
    for begin, end in _candidates(low, high):
        _, quantized = np.unique(rounded(centers, begin, end), return_inverse=True)
        inside = (centers >= begin) & (centers <= end)
        held = np.where(inside, counts, 0).astype(np.float64)
        sums = np.bincount(quantized, held)
        filled = np.bincount(quantized, held > 0)
        spread_out = np.where(held > 0, sums[quantized] / np.maximum(filled[quantized], 1), 0.0)
        clipped = held.copy()
        within = np.flatnonzero(inside)
        clipped[within[0]] += counts[: within[0]].sum()
        clipped[within[-1]] += counts[within[-1] + 1 :].sum()
        p, q = clipped / clipped.sum(), spread_out / max(spread_out.sum(), 1.0)
        both = (p > 0) & (q > 0)
        lost = float((p[both] * np.log(p[both] / q[both])).sum() + p[(p > 0) & (q == 0)].sum() * np.log(BINS))
        if lost < best:
            best, kept = lost, (begin, end)
    return kept


#: How a range is chosen from the counts of values; None: the extremes.
METHODS: dict[str, Callable[[Array, float, float, Rounding], tuple[float, float]] | None] = {
    "minmax": None,
    "percentile": _percentile,
    "entropy": _least_entropy,
    "mse": _least_error,
}
