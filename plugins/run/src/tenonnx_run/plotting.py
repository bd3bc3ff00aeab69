"""Axes of matplotlib for the plots of results."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from tenonnx.errors import InvalidCall, installing


def plot_axes(given: Any) -> Any:
    """Axes of matplotlib to draw on: ``given``, or those of a new figure.

    Raises ``InvalidCall`` without matplotlib, with the command that installs it.
    """
    if given is not None:
        return given
    try:
        pyplot: Any = import_module("matplotlib.pyplot")
    except ImportError as error:
        raise InvalidCall(
            "cannot plot: the package matplotlib is not installed", do=installing("tenonnx-run[plot]")
        ) from error
    return pyplot.subplots(layout="constrained")[1]
