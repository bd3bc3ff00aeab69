"""Learning rates that change: functions of the step, counted from 0, whose result is fed to the graph."""

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


def rate_at(rate: Rate, step: int) -> float:
    """The learning rate of a step. Raises ``InvalidCall`` for one that is no number or below zero."""
    found = rate(step) if callable(rate) else rate
    if not isinstance(found, Real) or not 0 <= found < math.inf:
        raise InvalidCall("a learning rate must be a non-negative number", given=f"{found!r} at step {step}")
    return float(found)
