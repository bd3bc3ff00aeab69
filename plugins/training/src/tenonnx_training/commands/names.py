"""Shell completion of names of losses, metrics and optimizers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tenonnx_training.names import LOSS_NAMES, METRIC_NAMES, OPTIMIZER_NAMES

if TYPE_CHECKING:
    import click


def losses(ctx: click.Context, option: click.Parameter, incomplete: str) -> list[str]:
    """The losses whose names begin so."""
    return [name for name in LOSS_NAMES if name.startswith(incomplete)]


def metrics(ctx: click.Context, option: click.Parameter, incomplete: str) -> list[str]:
    """The metrics whose names begin so, and the losses, which are metrics, too."""
    return [name for name in dict.fromkeys((*METRIC_NAMES, *LOSS_NAMES)) if name.startswith(incomplete)]


def optimizers(ctx: click.Context, option: click.Parameter, incomplete: str) -> list[str]:
    """The optimizers whose names begin so."""
    return [name for name in OPTIMIZER_NAMES if name.startswith(incomplete)]
