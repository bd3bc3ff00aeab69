"""What is measured over many batches: means of what graphs compute, and metrics of all that was predicted."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
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


@dataclass(frozen=True)
class Scalar:
    """One number that a graph gives for a batch: the mean of as many as ``count`` tells, by default of its samples.

    ``value`` and ``count`` are names of outputs. Where it is ``summed``, the number is the sum of as many, and without
    a count sums of batches are added up. ``finish`` makes the number that is reported of the mean.
    """

    name: str
    value: str
    count: str | None = None
    summed: bool = False
    finish: Callable[[float], float] = float


@dataclass(frozen=True)
class ArrayMetric:
    """A metric of all predictions and labels."""

    name: str
    function: Callable[[Array, Array], Any]

    def __call__(self, predictions: Array, labels: Array) -> float:
        found = self.function(predictions, labels)
        try:
            return float(found)
        except (TypeError, ValueError) as error:
            raise InvalidCall(
                f'the metric "{self.name}" must give one number', given=repr(found)[:80], do="return its mean"
            ) from error


@dataclass
class Measurement:
    """What was measured of one batch: by name the sum of a number and its weight, and what array metrics read.

    A sum that is no mean has no weight: None.
    """

    sums: dict[str, Sum]
    prediction: Array | None = None
    labels: Array | None = None

    def mean(self, name: str) -> float:
        """NaN where nothing counted."""
        return mean_of(*self.sums[name])


@dataclass
class Measuring:
    """Gathers measurements; ``sums``, ``predictions`` and ``labels`` are those of all so far."""

    scalars: Sequence[Scalar]
    metrics: Sequence[ArrayMetric] = ()
    sums: dict[str, Sum] = field(default_factory=dict)
    predictions: list[Array] = field(default_factory=list)
    labels: list[Array] = field(default_factory=list)

    def add(self, measured: Measurement) -> None:
        for name, (total, weight) in measured.sums.items():
            before, count = self.sums.get(name, (0.0, 0.0))
            self.sums[name] = before + total, None if weight is None else (count or 0.0) + weight
        if measured.prediction is not None and measured.labels is not None:
            self.predictions.append(measured.prediction)
            self.labels.append(measured.labels)

    @property
    def unknown(self) -> list[str]:
        """The names of what has not been measured so far."""
        scalars = [scalar.name for scalar in self.scalars if scalar.name not in self.sums]
        return [*scalars, *(metric.name for metric in self.metrics if not self.predictions)]

    def means(self) -> dict[str, float]:
        """The numbers that graphs compute, over all samples so far."""
        held = [scalar for scalar in self.scalars if scalar.name in self.sums]
        return {scalar.name: scalar.finish(mean_of(*self.sums[scalar.name])) for scalar in held}

    def values(self) -> dict[str, float]:
        """All numbers over all samples."""
        if not self.predictions or not self.metrics:
            return self.means()
        try:
            predictions, labels = np.concatenate(self.predictions), np.concatenate(self.labels)
        except ValueError as error:
            given = ", ".join(dict.fromkeys(str(array.shape[1:]) for array in self.predictions))
            raise InvalidFeed(
                "metrics on numpy arrays need predictions of equal shape in all batches",
                given=f"samples of {given}",
                do="pad all samples to one length",
            ) from error
        return {**self.means(), **{metric.name: metric(predictions, labels) for metric in self.metrics}}
