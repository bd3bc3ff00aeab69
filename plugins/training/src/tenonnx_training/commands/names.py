"""Shell completion of names of losses, metrics and optimizers."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import click


def losses(ctx: click.Context, option: click.Parameter, incomplete: str) -> list[str]:
    """The losses whose names begin so."""
    from tenonnx_training.losses import LOSSES

    return [name for name in LOSSES if name.startswith(incomplete)]


def metrics(ctx: click.Context, option: click.Parameter, incomplete: str) -> list[str]:
    """The metrics whose names begin so, and the losses, which are metrics, too."""
    from tenonnx_training.metrics import METRICS

    return [name for name in METRICS if name.startswith(incomplete)] + losses(ctx, option, incomplete)


def optimizers(ctx: click.Context, option: click.Parameter, incomplete: str) -> list[str]:
    """The optimizers whose names begin so."""
    from tenonnx_training.optimizers import OPTIMIZERS

    return [name for name in OPTIMIZERS if name.startswith(incomplete)]
