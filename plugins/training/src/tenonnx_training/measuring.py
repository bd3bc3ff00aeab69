"""Means and metrics over many batches."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tenonnx.extend import InvalidCall, InvalidFeed

Array = np.ndarray[Any, Any]

#: A sum and how much it is of; None where it is no mean, but added up as it is.
Sum = tuple[float, float | None]


def mean_of(total: float, weight: float | None) -> float:
    """NaN where nothing counted."""
    return total if weight is None else total / weight if weight else math.nan


def finite(measured: Mapping[str, float]) -> dict[str, float | None]:
    """Numbers for JSON, which has no NaN and no infinity: None in their place."""
    return {name: number if math.isfinite(number) else None for name, number in measured.items()}


#: Names of the arrays of array metrics, followed by the output where several have labels.
PREDICTIONS, LABELS = "training__predictions", "training__labels"


@dataclass(frozen=True)
class Scalar:
    """One number that a graph gives for a batch: the mean of as many as ``count`` tells, by default of its samples.

    ``value`` and ``count`` are names of outputs. Where it is ``summed``, the number is the sum of as many, and without
    a count sums of batches are added up. ``finish`` makes the number that is reported of the mean. A total has
    ``parts``, the names of other scalars with their weights, of whose means it is the sum.
    """

    name: str
    value: str
    count: str | None = None
    summed: bool = False
    finish: Callable[[float], float] = float
    parts: tuple[tuple[str, float], ...] = ()


@dataclass(frozen=True)
class ArrayMetric:
    """A metric of all predictions and labels, where several outputs have labels those of the output ``of``."""

    name: str
    function: Callable[[Array, Array], Any]
    of: str = ""

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
    """Measurements of one batch: by name the sum of a number and its weight, and the ``arrays`` for array metrics.

    A sum that is no mean has no weight: None.
    """

    sums: dict[str, Sum]
    arrays: dict[str, Array] = field(default_factory=dict)

    def mean(self, name: str) -> float:
        """NaN where nothing counted."""
        return mean_of(*self.sums[name])


@dataclass
class Measuring:
    """Gathers measurements; ``sums`` and ``arrays`` are those of all so far."""

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
        """The names of what has not been measured so far."""
        scalars = [scalar.name for scalar in self.scalars if scalar.name not in self.sums]
        return [*scalars, *(metric.name for metric in self.metrics if not self.arrays)]

    def means(self) -> dict[str, float]:
        """The numbers that graphs compute, over all samples so far."""
        held = [scalar for scalar in self.scalars if scalar.name in self.sums]
        found = {scalar.name: scalar.finish(mean_of(*self.sums[scalar.name])) for scalar in held}
        for scalar in (each for each in held if each.parts):
            found[scalar.name] = sum(weight * found[name] for name, weight in scalar.parts)
        return found

    def values(self) -> dict[str, float]:
        """All numbers over all samples."""
        if not self.arrays or not self.metrics:
            return self.means()
        try:
            held = {name: np.concatenate(arrays) for name, arrays in self.arrays.items()}
        except ValueError as error:
            predictions = [arrays for name, arrays in self.arrays.items() if name.startswith(PREDICTIONS)]
            given = ", ".join(dict.fromkeys(str(array.shape[1:]) for arrays in predictions for array in arrays))
            raise InvalidFeed(
                "predictions of different shapes cannot be joined for metrics on numpy arrays",
                given=f"samples of {given}",
                do="pad all samples to one length",
            ) from error
        found = {each.name: each(held[PREDICTIONS + each.of], held[LABELS + each.of]) for each in self.metrics}
        return {**self.means(), **found}
