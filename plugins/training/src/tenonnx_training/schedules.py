"""Learning rate schedules: functions of the step, counted from 0."""

from __future__ import annotations

import math
from dataclasses import dataclass
from numbers import Real

from tenonnx.extend import InvalidCall
from tenonnx_training.optimizers import Rate


@dataclass(frozen=True)
class CosineDecay:
    """Linear ``warmup``, then half a cosine from ``peak`` down to ``floor``, over ``steps`` steps in total."""

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
    """Linear from ``first`` to ``last`` over ``steps`` steps, then constant."""

    first: float
    last: float
    steps: int

    def __call__(self, step: int) -> float:
        share = min(step / max(self.steps, 1), 1.0)
        return self.first + (self.last - self.first) * share


@dataclass(frozen=True)
class StepDecay:
    """``first``, multiplied by ``factor`` every ``every`` steps."""

    first: float
    every: int
    factor: float = 0.1

    def __call__(self, step: int) -> float:
        return self.first * self.factor ** (step // self.every)


@dataclass(frozen=True)
class PolynomialDecay:
    """From ``first`` to ``last`` over ``steps`` steps, along a polynomial of degree ``power``; then constant."""

    first: float
    steps: int
    power: float = 1.0
    last: float = 0.0

    def __call__(self, step: int) -> float:
        left = 1 - min(step / max(self.steps, 1), 1.0)
        return self.last + (self.first - self.last) * math.pow(left, self.power)


@dataclass(frozen=True)
class OneCycle:
    """Cosine up to ``peak`` and down again over ``steps`` steps (Smith and Topin 2017).

    The first ``rise`` of the steps go from ``peak / start`` to the peak, the rest to ``peak / start / end``. As
    PyTorch's ``OneCycleLR``, which counts the last step as part of the decay.
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
    """Repeated half cosines from ``peak`` to ``floor`` over ``steps`` steps (Loshchilov and Hutter 2017).

    Each period is ``growth`` times as long as the one before; ``growth`` is an integer.
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
    """The learning rate of a step. Raises ``InvalidCall`` for a negative or non-finite one."""
    found = rate(step) if callable(rate) else rate
    if not isinstance(found, Real) or not 0 <= found < math.inf:
        raise InvalidCall("the learning rate is negative or NaN", given=f"{found!r} at step {step}")
    return float(found)


SCHEDULES = (CosineDecay, LinearDecay, StepDecay, PolynomialDecay, OneCycle, WarmRestarts)
