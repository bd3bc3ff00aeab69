"""What is measured over many batches: means of what graphs compute, and metrics of all that was predicted."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tenonnx.extend import InvalidCall

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Scalar:
    """One number that a graph gives for a batch: the mean of its samples, or a sum of as many as ``count`` tells.

    ``value`` and ``count`` are names of outputs; ``finish`` makes the number that is reported of the mean.
    """

    name: str
    value: str
    count: str | None = None
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
    """What was measured of one batch: by name the sum of a number and its weight, and what array metrics read."""

    sums: dict[str, tuple[float, float]]
    prediction: Array | None = None
    labels: Array | None = None

    def mean(self, name: str) -> float:
        total, weight = self.sums[name]
        return total / weight


@dataclass
class Measuring:
    """Gathers measurements; ``sums``, ``predictions`` and ``labels`` are those of all so far."""

    scalars: Sequence[Scalar]
    metrics: Sequence[ArrayMetric] = ()
    sums: dict[str, tuple[float, float]] = field(default_factory=dict)
    predictions: list[Array] = field(default_factory=list)
    labels: list[Array] = field(default_factory=list)

    def add(self, measured: Measurement) -> None:
        for name, (total, weight) in measured.sums.items():
            before = self.sums.get(name, (0.0, 0.0))
            self.sums[name] = before[0] + total, before[1] + weight
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
        held = [scalar for scalar in self.scalars if self.sums.get(scalar.name, (0, 0))[1]]
        return {s.name: s.finish(self.sums[s.name][0] / self.sums[s.name][1]) for s in held}

    def values(self) -> dict[str, float]:
        """All numbers over all samples."""
        if not self.predictions or not self.metrics:
            return self.means()
        predictions, labels = np.concatenate(self.predictions), np.concatenate(self.labels)
        return {**self.means(), **{metric.name: metric(predictions, labels) for metric in self.metrics}}
