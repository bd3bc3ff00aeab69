"""Learning rate schedules: functions of the step, counted from 0."""

from __future__ import annotations

import math
from dataclasses import dataclass
from numbers import Real

from tenonnx.extend import InvalidCall
from tenonnx_training.optimizers import Rate


@dataclass(frozen=True)
class CosineDecay:
    """From ``peak`` down to ``floor`` along half a cosine over ``steps`` steps; before that a linear ``warmup``."""

    peak: float
    steps: int
    warmup: int = 0
    floor: float = 0.0

    def __call__(self, step: int) -> float:
        if step < self.warmup:
            return self.peak * (step + 1) / self.warmup
        share = min((step - self.warmup) / max(self.steps - self.warmup, 1), 1.0)
        return self.floor + (self.peak - self.floor) * (1 + math.cos(math.pi * share)) / 2


@dataclass(frozen=True)
class LinearDecay:
    """From ``first`` to ``last`` in a straight line over ``steps`` steps, and ``last`` from there on."""

    first: float
    last: float
    steps: int

    def __call__(self, step: int) -> float:
        share = min(step / max(self.steps, 1), 1.0)
        return self.first + (self.last - self.first) * share


@dataclass(frozen=True)
class StepDecay:
    """``first``, multiplied by ``factor`` after every ``every`` steps."""

    first: float
    every: int
    factor: float = 0.1

    def __call__(self, step: int) -> float:
        return self.first * self.factor ** (step // self.every)


@dataclass(frozen=True)
class PolynomialDecay:
    """From ``first`` to ``last`` over ``steps`` steps: what is left of the way to the ``power``; then ``last``."""

    first: float
    steps: int
    power: float = 1.0
    last: float = 0.0

    def __call__(self, step: int) -> float:
        left = 1 - min(step / max(self.steps, 1), 1.0)
        return self.last + (self.first - self.last) * math.pow(left, self.power)


@dataclass(frozen=True)
class OneCycle:
    """Up to ``peak`` and down again over ``steps`` steps along cosines (Smith and Topin 2017).

    A share ``rise`` of the steps leads from ``peak / start`` to the peak, the rest to ``peak / start / end``; the
    numbers are those of PyTorch's ``OneCycleLR``, which counts the last step as one of the decay.
    """

    peak: float
    steps: int
    rise: float = 0.3
    start: float = 25.0
    end: float = 1e4

    def __call__(self, step: int) -> float:
        first = self.peak / self.start
        top, last = self.rise * self.steps - 1, self.steps - 1
        if step <= top:
            return _along_cosine(first, self.peak, step / top if top > 0 else 1.0)
        share = (step - top) / (last - top) if last > top else 1.0
        return _along_cosine(self.peak, first / self.end, min(share, 1.0))


@dataclass(frozen=True)
class WarmRestarts:
    """Half a cosine from ``peak`` to ``floor`` over ``steps`` steps, again and again (Loshchilov and Hutter 2017).

    Each period is ``growth`` times as long as the one before, a whole number.
    """

    peak: float
    steps: int
    growth: int = 1
    floor: float = 0.0

    def __call__(self, step: int) -> float:
        length = max(self.steps, 1)
        while step >= length:
            step, length = step - length, length * max(self.growth, 1)
            if self.growth <= 1:
                step %= length
        return _along_cosine(self.peak, self.floor, step / length)


def _along_cosine(first: float, last: float, share: float) -> float:
    return last + (first - last) * (1 + math.cos(math.pi * share)) / 2


def rate_at(rate: Rate, step: int) -> float:
    """The learning rate of a step. Raises ``InvalidCall`` for one that is no number or below zero."""
    found = rate(step) if callable(rate) else rate
    if not isinstance(found, Real) or not 0 <= found < math.inf:
        raise InvalidCall("the learning rate is negative or NaN", given=f"{found!r} at step {step}")
    return float(found)


SCHEDULES = (CosineDecay, LinearDecay, StepDecay, PolynomialDecay, OneCycle, WarmRestarts)
