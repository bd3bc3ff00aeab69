"""Learning rate range test: the loss while the learning rate grows (Smith 2017)."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import count, islice
from typing import Any

import numpy as np

from tenonnx.extend import Graph, InvalidCall
from tenonnx.extend.transforms import copy_graph
from tenonnx.tools import write_bytes
from tenonnx_training.config import TrainingConfig, configured, takes
from tenonnx_training.curves import HEIGHT, WIDTH, curve
from tenonnx_training.data import Batch, Batches, Data
from tenonnx_training.tables import read_files
from tenonnx_training.training_step import TrainingStep, check_graph

#: Weight of the moving average in the smoothed loss; multiple of the first loss decrease at which the search ends.
SMOOTHING, DIVERGED = 0.9, 4.0


@dataclass
class RateSearch:
    """Losses by learning rate; ``suggestion`` is the rate at which the smoothed loss falls fastest."""

    rates: list[float] = field(default_factory=list)
    losses: list[float] = field(default_factory=list)

    @property
    def smoothed(self) -> list[float]:
        """Exponential moving average of the losses, with bias correction."""
        result, mean = [], 0.0
        for k, loss in enumerate(self.losses, 1):
            mean = SMOOTHING * mean + (1 - SMOOTHING) * loss
            result.append(mean / (1 - SMOOTHING**k))
        return result

    @property
    def suggestion(self) -> float:
        """Rate at which the smoothed loss falls fastest. Raises ``InvalidCall`` if it never falls."""
        smoothed = self.smoothed
        slopes = np.gradient(smoothed) if len(smoothed) > 1 else np.zeros(1)
        best = int(np.argmin(slopes))
        if not slopes[best] < 0:
            raise InvalidCall(
                "the loss does not fall at any learning rate",
                given=f"rates from {self.rates[0]:.2g} to {self.rates[-1]:.2g}",
                do="begin lower: low=1e-9",
            )
        return self.rates[best]

    def to_svg(self) -> str:
        """Plot of the smoothed loss over the logarithm of the rate, with the suggestion marked; empty for one step."""
        smoothed = self.smoothed
        least = min(smoothed)
        shown = [min(loss, least + DIVERGED * (smoothed[0] - least or 1.0)) for loss in smoothed]
        drawn = curve(shown, f"loss by rate from {self.rates[0]:.2g} to {self.rates[-1]:.2g}, log scale")
        try:
            place = self.rates.index(self.suggestion) / max(len(self.rates) - 1, 1) * WIDTH
        except InvalidCall:
            return drawn
        line = (
            f'<line x1="{place:.1f}" x2="{place:.1f}" y1="16" y2="{HEIGHT:.0f}" stroke="currentColor" '
            f'stroke-dasharray="3"/><text x="{min(place + 4, WIDTH - 60):.1f}" y="{HEIGHT - 6:.0f}" '
            f'fill="currentColor">{self.suggestion:.2g}</text></svg>'
        )
        return drawn.removesuffix("</svg>") + line if drawn else ""

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the plot as an SVG file."""
        write_bytes(os.fspath(path), [self.to_svg().encode("utf-8")])

    def _repr_html_(self) -> str:
        return self.to_svg()


@takes(TrainingConfig)
def find_learning_rate(
    graph: Graph,
    data: Data,
    *,
    low: float = 1e-7,
    high: float = 10.0,
    steps: int = 100,
    config: TrainingConfig | None = None,
    **options: Any,
) -> RateSearch:
    """Train a copy of ``graph`` while the learning rate grows exponentially from ``low`` to ``high`` in ``steps``
    steps.

    ``data`` and ``options`` are as in ``fit``, except that its schedule is ignored. The search ends early where the
    loss is not finite, or rises above the least loss by ``DIVERGED`` times the initial difference. ``graph`` is not
    changed.
    """
    check_graph(graph)
    if not (0 < low < high < math.inf and isinstance(steps, int) and steps > 1):
        raise InvalidCall(
            "invalid range of learning rates",
            given=f"low={low!r}, high={high!r}, steps={steps!r}",
            do="low is above 0 and below high, and steps is 2 or more",
        )
    config, more = configured(TrainingConfig, config, options, "find_learning_rate")
    copied = copy_graph(graph)
    data, config = read_files(copied, data, config)
    step = TrainingStep(copied, config=config, **more)
    inputs = [value.name for value in copied.inputs if value.name not in step.label_names]
    inputs += step.label_names if step.labels is None else []
    cutting: dict[str, Any] = {
        "batch_size": config.batch_size or 32,
        "shuffle": config.shuffle is not False,
        "seed": step.seed,
    }
    batches = Batches(data, inputs, step.labels, config.sample_weights, **cutting)
    result = RateSearch()
    for k, batch in enumerate(islice(_endless(batches), steps)):
        rate = low * (high / low) ** (k / (steps - 1))
        measured = step.train(batch, learning_rate=rate)
        loss = measured.mean(step._step_graph.measured.loss)
        if not math.isfinite(loss):
            break
        result.rates.append(rate)
        result.losses.append(loss)
        smoothed, least = result.smoothed, min(result.smoothed)
        if k > 1 and smoothed[-1] > least + DIVERGED * max(smoothed[0] - least, abs(smoothed[0]) / 2):
            break
    if not result.losses:
        raise InvalidCall("the loss is not finite at the first learning rate", given=f"low={low!r}")
    return result


def _endless(batches: Batches) -> Iterator[Batch]:
    """Batches of successive epochs, without end."""
    for epoch in count():
        yield from batches.epoch(epoch)
