"""Check of random ops against the distribution that their case declares."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from tenonnx_testing.cases import Call, Case
from tenonnx_testing.run import Failure, Outputs, blaming, evaluate

#: Number of seeds, and accepted deviation of their mean in standard errors.
SEEDS, SIGMAS = 100, 5


def is_followed(case: Case, drawn: Call, expected: Outputs) -> bool:
    """Check mean, standard deviation and range of the first output over many seeds; equal seeds give equal numbers."""
    assert case.law is not None
    law = case.law(drawn)

    def draws(seed: float | None) -> Any:
        with blaming(f"{case.op.title} with seed={seed}"):
            return evaluate(case.op, replace(drawn, attributes={**drawn.attributes, "seed": seed}))[0]

    first = draws(0.0)
    if not np.array_equal(first, draws(0.0)):
        raise Failure(f"{case.op.title} gives other numbers each time for one seed")
    found = np.stack([first, *(draws(float(seed)) for seed in range(1, SEEDS))]).astype(np.float64)
    if found.min() < law.low or found.max() > law.high:
        raise Failure(f"{case.op.title} gives {found.min()} to {found.max()}, outside of {law.low} to {law.high}")
    mean, deviation = (np.broadcast_to(np.asarray(v, np.float64), first.shape) for v in (law.mean, law.deviation))
    rounding = 0.0 if first.dtype.kind in "biu" else float(np.finfo(first.dtype).eps) * (np.abs(mean) + deviation)
    if (np.abs(found.mean(0) - mean) > SIGMAS * deviation / np.sqrt(SEEDS) + rounding).any():
        raise Failure(f"{case.op.title} has the mean {found.mean(0).tolist()}, not {mean.tolist()}")
    varying = deviation > 0
    squares = ((found - mean)[:, varying] / deviation[varying]) ** 2
    if squares.size and abs(squares.mean() - 1) > SIGMAS * squares.std() / np.sqrt(squares.size) + 1e-2:
        raise Failure(f"{case.op.title} deviates {np.sqrt(squares.mean()):.3g} times as much as it should")
    return True
