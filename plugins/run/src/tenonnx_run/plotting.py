"""Axes of matplotlib for the plots of results."""

from __future__ import annotations

from typing import Any

from tenonnx.errors import import_optional


def plot_axes(given: Any) -> Any:
    """Axes of matplotlib to draw on: ``given``, or those of a new figure.

    Raises ``InvalidCall`` without matplotlib, with the command that installs it.
    """
    if given is not None:
        return given
    pyplot = import_optional("matplotlib.pyplot", "plot", install="tenonnx-run[plot]")
    return pyplot.subplots(layout="constrained")[1]
