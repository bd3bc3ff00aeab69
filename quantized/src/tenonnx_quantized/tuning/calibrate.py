"""Calibration: ranges of activations on data, by extremes, percentile, entropy or mean square error."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from tenonnx.extend import DType, Graph, InvalidCall
from tenonnx.extend.backends import Program
from tenonnx_quantized.tuning.quantized_tensor import encode, parameters
from tenonnx_quantized.tuning.statistics import Batch, Moments, check_batch, watching

Array = np.ndarray[Any, Any]

#: Number of histogram bins per activation.
BINS = 2048

#: Bytes of batches and their outputs that are kept for histograms and error measurement.
BATCH_BYTES = 1 << 28

#: A function that rounds numbers to the quantized values of a range.
Rounding = Callable[[Array, float, float], Array]

#: A function that selects a range from a histogram.
Choice = Callable[[Array, float, float, Rounding], tuple[float, float]]


@dataclass(slots=True)
class Observed:
    """Observations of a float graph.

    The range and the extremes of each watched value over all batches, its contents in the first batch, and a sample of
    batches with every output of the graph. The sample has all batches, or a random choice that fits into
    ``BATCH_BYTES``.
    """

    ranges: dict[str, tuple[float, float]] = field(default_factory=dict)
    extremes: dict[str, tuple[float, float]] = field(default_factory=dict)
    first: dict[str, Array] = field(default_factory=dict)
    batches: list[Batch] = field(default_factory=list)
    results: list[dict[str, Array]] = field(default_factory=list)
    count: int = 0

    @property
    def outputs(self) -> dict[str, list[Array]]:
        """The contents of every output, batch by batch."""
        names = self.results[0] if self.results else {}
        return {name: [each[name] for each in self.results] for name in names}


class _Sample:
    """A uniform random sample of batches in bounded memory (Vitter 1985, algorithm R)."""

    def __init__(self, found: Observed) -> None:
        self.observed, self.size, self.capacity = found, 0, 0
        self.random = np.random.default_rng(0)

    def add(self, batch: Batch, results: dict[str, Array]) -> None:
        found, place = self.observed, self.observed.count
        found.count += 1
        self.size += sum(np.asarray(each).nbytes for each in (*batch.values(), *results.values()))
        if not self.capacity:
            found.batches.append(batch)
            found.results.append(results)
            if self.size > BATCH_BYTES:
                self.capacity = len(found.batches)
        elif (other := int(self.random.integers(place + 1))) < self.capacity:
            found.batches[other], found.results[other] = batch, results


def sample(batches: Iterable[Batch], *, check: bool = False) -> list[Batch]:
    """All batches, or a random sample that fits into ``BATCH_BYTES``; ``check`` as for ``observe``."""
    found = Observed()
    kept = _Sample(found)
    for number, batch in enumerate(batches):
        if check:
            check_batch(batch, number)
        kept.add(batch, {})
    if not found.count:
        raise InvalidCall("calibration got no data", do="give one batch or more")
    return found.batches


def observe(
    graph: Graph,
    names: Sequence[str],
    batches: Iterable[Batch],
    method: str,
    backend: str = "auto",
    *,
    dtype: DType = DType.uint8,
    symmetric: bool = False,
    percentile: float = 99.99,
    moments: Moments | None = None,
    check: bool = False,
) -> Observed:
    """Run a graph once over all batches; returns the ranges of ``names`` by a method of ``METHODS``, for a type.

    Extremes cover all batches; histograms cover the batches that are kept. ``percentile`` is the share of values inside
    the range, in percent. ``moments`` collects statistics of layer inputs during the run. With ``check``, raises
    ``InvalidCall`` for a batch with NaN or infinite numbers, and for a watched value that becomes NaN. Also raises
    ``InvalidCall`` without batches.
    """
    if method not in METHODS:
        raise InvalidCall("unknown calibration method", given=method, available=", ".join(METHODS))
    result = Observed()
    sample = _Sample(result)
    inputs = [] if moments is None else moments.begin()
    outputs = [value.name for value in graph.outputs]
    program = watching(graph, list(dict.fromkeys((*outputs, *names, *inputs))), backend)
    low, high = dict.fromkeys(names, np.inf), dict.fromkeys(names, -np.inf)
    averages = method == "average"
    for number, batch in enumerate(batches):
        if check:
            check_batch(batch, number)
        values = program(batch)
        for name in names:
            if values[name].size:
                least, greatest = float(values[name].min()), float(values[name].max())
                if averages and number:
                    low[name] += (least - low[name]) / (number + 1)
                    high[name] += (greatest - high[name]) / (number + 1)
                else:
                    low[name], high[name] = min(low[name], least), max(high[name], greatest)
                if check and math.isnan(greatest):
                    raise InvalidCall(
                        f'"{name}" is NaN on the calibration data',
                        given=f"batch {number}",
                        do="look for the first such value with tenonnx debug, or leave the batch out",
                    )
        if moments is not None:
            moments.add(values)
        sample.add(batch, {name: values[name] for name in outputs})
        result.first = result.first or {name: values[name] for name in names}
    if not result.count:
        raise InvalidCall("calibration got no data", do="give one batch or more")
    if moments is not None:
        moments.batches = result.batches
    result.extremes = {name: (low[name], high[name]) for name in names}
    result.ranges = {name: (min(low[name], 0.0), max(high[name], 0.0)) for name in names}
    choose = METHODS[method]
    if method == "percentile":
        choose = partial(_percentile, percentile=percentile)
    _choose(program, result, names, choose, partial(_rounded, dtype=dtype, symmetric=symmetric))
    return result


def _choose(program: Program, found: Observed, names: Sequence[str], choose: Choice | None, rounded: Rounding) -> None:
    """Replace the extremes by ranges selected from histograms."""
    ranges = found.ranges
    counted = [name for name in names if ranges[name][0] < ranges[name][1] and np.isfinite(ranges[name]).all()]
    if choose is None or not counted:
        return
    counts = {name: np.zeros(BINS, np.int64) for name in counted}
    for batch in found.batches:
        values = program(batch)
        for name in counted:
            counts[name] += np.histogram(values[name], BINS, ranges[name])[0]
    ranges |= {name: choose(counts[name], *ranges[name], rounded) for name in counted}


# ----- selection of ranges from histograms ----------------------------------------------------------------------------


def _rounded(numbers: Array, low: float, high: float, *, dtype: DType, symmetric: bool) -> Array:
    return encode(numbers, parameters(low, high, dtype, symmetric=symmetric), None).numbers()


def _percentile(
    counts: Array, low: float, high: float, rounded: Rounding, percentile: float = 99.99
) -> tuple[float, float]:
    """The range that excludes equally many values on both sides."""
    edges, share = np.linspace(low, high, BINS + 1), np.cumsum(counts) / counts.sum()
    out = (1 - percentile / 100) / 2
    last = min(int(np.searchsorted(share, 1 - out)), len(counts) - 1)
    return float(edges[np.searchsorted(share, out)]), float(edges[last + 1])


def _candidates(low: float, high: float) -> list[tuple[float, float]]:
    """The full range and ever smaller ones, symmetrically clipped."""
    return [(low * part, high * part) for part in np.linspace(1.0, 0.2, 81)]


def _least_error(counts: Array, low: float, high: float, rounded: Rounding) -> tuple[float, float]:
    """The clipped range with the least mean square error."""
    edges = np.linspace(low, high, BINS + 1)
    centers = (edges[1:] + edges[:-1]) / 2
    return min(
        _candidates(low, high), key=lambda each: float((counts * (centers - rounded(centers, *each)) ** 2).sum())
    )


def _least_entropy(counts: Array, low: float, high: float, rounded: Rounding) -> tuple[float, float]:
    """The clipped range with the least Kullback-Leibler divergence from the distribution of the values (1951)."""
    edges = np.linspace(low, high, BINS + 1)
    centers = (edges[1:] + edges[:-1]) / 2
    best, kept = np.inf, (low, high)
    for begin, end in _candidates(low, high):
        _, quantized = np.unique(rounded(centers, begin, end), return_inverse=True)
        inside = (centers >= begin) & (centers <= end)
        counted = np.where(inside, counts, 0).astype(np.float64)
        sums = np.bincount(quantized, counted)
        filled = np.bincount(quantized, counted > 0)
        spread_out = np.where(counted > 0, sums[quantized] / np.maximum(filled[quantized], 1), 0.0)
        clipped = counted.copy()
        within = np.flatnonzero(inside)
        clipped[within[0]] += counts[: within[0]].sum()
        clipped[within[-1]] += counts[within[-1] + 1 :].sum()
        p, q = clipped / clipped.sum(), spread_out / max(spread_out.sum(), 1.0)
        both = (p > 0) & (q > 0)
        lost = float((p[both] * np.log(p[both] / q[both])).sum() + p[(p > 0) & (q == 0)].sum() * np.log(BINS))
        if lost < best:
            best, kept = lost, (begin, end)
    return kept


#: Selection of ranges from histograms; None: the extremes.
METHODS: dict[str, Choice | None] = {
    "minmax": None,
    "average": None,
    "percentile": _percentile,
    "entropy": _least_entropy,
    "mse": _least_error,
}
