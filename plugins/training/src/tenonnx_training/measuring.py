"""Means and metrics over many batches."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tenonnx.extend import InvalidCall, InvalidFeed

Array = np.ndarray[Any, Any]

#: A sum and its weight; a weight of None marks a plain sum, without a mean.
Sum = tuple[float, float | None]


def mean_of(total: float, weight: float | None) -> float:
    """The mean of a weighted sum, or a plain sum; NaN for a weight of zero."""
    return total if weight is None else total / weight if weight else math.nan


def finite(measured: Mapping[str, float]) -> dict[str, float | None]:
    """Numbers for JSON, with None for NaN and infinities."""
    return {name: number if math.isfinite(number) else None for name, number in measured.items()}


#: Names of the arrays of array metrics; with several labeled outputs, the output follows.
PREDICTIONS, LABELS = "training__predictions", "training__labels"


@dataclass(frozen=True)
class Scalar:
    """A number that a graph computes for a batch, averaged over batches by ``count``, by default the samples.

    ``value`` and ``count`` are names of outputs. ``summed``: the value is already the sum over ``count`` elements, or a
    plain sum without ``count``. ``finish`` maps the mean to the reported number. A total has ``terms``: names of other
    scalars with their weights, whose means it adds up.
    """

    name: str
    value: str
    count: str | None = None
    summed: bool = False
    finish: Callable[[float], float] = float
    terms: tuple[tuple[str, float], ...] = ()


@dataclass(frozen=True)
class ArrayMetric:
    """A metric of all predictions and labels; with several labeled outputs, those of the output ``output``."""

    name: str
    function: Callable[[Array, Array], Any]
    output: str = ""

    def __call__(self, predictions: Array, labels: Array) -> float:
        found = self.function(predictions, labels)
        try:
            return float(found)
        except (TypeError, ValueError) as error:
            raise InvalidCall(
                f'the metric "{self.name}" returned something other than one number',
                given=repr(found)[:80],
                do="return its mean",
            ) from error


@dataclass
class Measurement:
    """Measurements of one batch: by name a sum and its weight, and the ``arrays`` for array metrics.

    A plain sum has the weight None.
    """

    sums: dict[str, Sum]
    arrays: dict[str, Array] = field(default_factory=dict)

    def mean(self, name: str) -> float:
        """Mean of a measurement; NaN for a weight of zero."""
        return mean_of(*self.sums[name])


@dataclass
class Measuring:
    """Accumulates measurements; ``sums`` and ``arrays`` hold all so far."""

    scalars: Sequence[Scalar]
    metrics: Sequence[ArrayMetric] = ()
    sums: dict[str, Sum] = field(default_factory=dict)
    arrays: dict[str, list[Array]] = field(default_factory=dict)

    def add(self, measured: Measurement) -> None:
        for name, (total, weight) in measured.sums.items():
            before, count = self.sums.get(name, (0.0, 0.0))
            self.sums[name] = before + total, None if weight is None else (count or 0.0) + weight
        for name, array in measured.arrays.items():
            self.arrays.setdefault(name, []).append(array)

    @property
    def unknown(self) -> list[str]:
        """Names of the results without measurements so far."""
        scalars = [scalar.name for scalar in self.scalars if scalar.name not in self.sums]
        return [*scalars, *(metric.name for metric in self.metrics if not self.arrays)]

    def means(self) -> dict[str, float]:
        """Results that graphs compute, over all samples so far."""
        scalars = [scalar for scalar in self.scalars if scalar.name in self.sums]
        result = {scalar.name: scalar.finish(mean_of(*self.sums[scalar.name])) for scalar in scalars}
        for scalar in (each for each in scalars if each.terms):
            result[scalar.name] = sum(weight * result[name] for name, weight in scalar.terms)
        return result

    def values(self) -> dict[str, float]:
        """All results, over all samples."""
        if not self.arrays or not self.metrics:
            return self.means()
        try:
            joined = {name: np.concatenate(arrays) for name, arrays in self.arrays.items()}
        except ValueError as error:
            predictions = [arrays for name, arrays in self.arrays.items() if name.startswith(PREDICTIONS)]
            given = ", ".join(dict.fromkeys(str(array.shape[1:]) for arrays in predictions for array in arrays))
            raise InvalidFeed(
                "predictions of different shapes cannot be joined for metrics on numpy arrays",
                given=f"samples of {given}",
                do="pad all samples to one length",
            ) from error
        found = {
            each.name: each(joined[PREDICTIONS + each.output], joined[LABELS + each.output]) for each in self.metrics
        }
        return {**self.means(), **found}
