"""Shell completion of names of losses, metrics and optimizers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tenonnx_training.names import LOSS_NAMES, METRIC_NAMES, OPTIMIZER_NAMES

if TYPE_CHECKING:
    import click


def losses(ctx: click.Context, option: click.Parameter, incomplete: str) -> list[str]:
    """Names of losses with this prefix."""
    return [name for name in LOSS_NAMES if name.startswith(incomplete)]


def metrics(ctx: click.Context, option: click.Parameter, incomplete: str) -> list[str]:
    """Names of metrics with this prefix, including losses, which are metrics too."""
    return [name for name in dict.fromkeys((*METRIC_NAMES, *LOSS_NAMES)) if name.startswith(incomplete)]


def optimizers(ctx: click.Context, option: click.Parameter, incomplete: str) -> list[str]:
    """Names of optimizers with this prefix."""
    return [name for name in OPTIMIZER_NAMES if name.startswith(incomplete)]
