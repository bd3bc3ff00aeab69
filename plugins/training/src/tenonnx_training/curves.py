"""Loss curves and tables of a history in notebooks."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape
from importlib.util import find_spec
from typing import Any

#: Maximum number of points of a curve, and the size of the plot.
POINTS, WIDTH, HEIGHT = 400, 480.0, 120.0


def page(losses: Sequence[float], epochs: Sequence[Mapping[str, float]], notes: Sequence[str]) -> str | None:
    """HTML of a history, None without tenonnx-cli."""
    if find_spec("tenonnx_cli") is None:
        return None
    from tenonnx_cli.html import part, table

    names = list(dict.fromkeys(name for epoch in epochs for name in epoch))
    rows = [[f"{epoch[name]:.4g}" if name in epoch else "" for name in names] for epoch in epochs]
    head = f"{len(losses):,} steps, {len(epochs):,} epochs"
    return part(head, curve(losses, "loss of each step"), table(names, rows), notes=notes)


def curve(numbers: Sequence[float], title: str) -> str:
    """A line plot of numbers as SVG; an empty string for fewer than two finite numbers.

    More than ``POINTS`` numbers are averaged in groups of equal size.
    """
    size = max(1, math.ceil(len(numbers) / POINTS))
    parts = [numbers[k : k + size] for k in range(0, len(numbers), size)]
    means = [sum(part) / len(part) for part in parts]
    points = [(k, mean) for k, mean in enumerate(means) if math.isfinite(mean)]
    if len(points) < 2:
        return ""
    low, high = min(mean for _, mean in points), max(mean for _, mean in points)
    across, up = WIDTH / max(len(means) - 1, 1), (HEIGHT - 20) / ((high - low) or 1.0)
    line = " ".join(f"{k * across:.1f},{HEIGHT - 4 - (mean - low) * up:.1f}" for k, mean in points)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH:.0f}" height="{HEIGHT:.0f}" role="img" '
        f'viewBox="0 0 {WIDTH:.0f} {HEIGHT:.0f}" font-family="system-ui, sans-serif" font-size="11">'
        f'<text x="0" y="11" fill="currentColor">{escape(title)}: from {numbers[0]:.4g} to {numbers[-1]:.4g}</text>'
        f'<polyline points="{line}" fill="none" stroke="#38808f" stroke-width="1.5"/></svg>'
    )


def plot_curves(
    losses: Sequence[float], epochs: Sequence[Mapping[str, float]], resumed: int = 0, axes: Any = None
) -> Any:
    """Plot the loss of steps, the training and validation loss of epochs, and metrics on a second axis.

    The steps of the first ``resumed`` epochs are unknown; they get the same width as the others. Returns the axes of
    matplotlib.
    """
    from tenonnx.tools import plot_axes

    axes = plot_axes(axes)
    steps = len(losses) / max(len(epochs) - resumed, 1) or 1.0
    axes.plot(
        [resumed * steps + k + 1 for k in range(len(losses))],
        losses,
        color="0.7",
        linewidth=0.8,
        label="loss of each step",
    )
    ends = [(k + 1) * steps for k in range(len(epochs))]
    names = [name for name in dict.fromkeys(name for epoch in epochs for name in epoch) if name != "epoch"]
    metrics = [name for name in names if name not in _LOSSES]
    right = axes.twinx() if metrics else axes
    for place, name in enumerate(names):
        at = [(end, epoch[name]) for end, epoch in zip(ends, epochs, strict=True) if name in epoch]
        style = {"marker": "o", "linestyle": "--" if name.startswith("validation_") else "-", "color": f"C{place}"}
        (right if name in metrics else axes).plot(*zip(*at, strict=True), label=name.replace("_", " "), **style)
    axes.set_xlabel("step" if losses else "epoch")
    axes.set_ylabel("loss")
    lines = axes.get_lines()
    if metrics:
        right.set_ylabel(", ".join(dict.fromkeys(name.removeprefix("validation_") for name in metrics)))
        lines = [*lines, *right.get_lines()]
    axes.legend(lines, [line.get_label() for line in lines])
    return axes


#: Results of epochs that share the axis with the loss of steps.
_LOSSES = ("loss", "validation_loss")
