"""The optimizer of ``tenonnx train``: by name, or that of the checkpoint with changed settings."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from tenonnx_cli.extend import gathered, in_order

if TYPE_CHECKING:
    from tenonnx.extend import Graph
    from tenonnx_training.optimizers import Optimizer


@dataclasses.dataclass(frozen=True)
class OptimizerOptions:
    """An optimizer by name and its settings. ``schedule`` is a kind and its number of steps, None for the whole run."""

    optimizer: str | None
    learning_rate: float | None
    weight_decay: float | None
    schedule: tuple[str, int | None] | None

    def build(
        self, graph: Graph, samples: int, epochs: int, batch_size: int | None, accumulate: int | None
    ) -> Optimizer:
        """The optimizer for training ``graph`` on ``samples`` samples for ``epochs`` epochs."""
        from tenonnx_training.settings import named_optimizer, resolved_settings

        given = {"learning_rate": self.learning_rate, "weight_decay": self.weight_decay}
        changes = {name: value for name, value in given.items() if value is not None}
        result = named_optimizer(self.optimizer, graph.training_state, changes)
        if self.schedule is None:
            return result
        known, _ = resolved_settings(graph.training_state, {"batch_size": batch_size, "accumulate": accumulate})
        batches = -(-samples // int(known["batch_size"]))
        return _scheduled(graph, result, *self.schedule, run=epochs * -(-batches // int(known["accumulate"])))


def _scheduled(graph: Graph, optimizer: Optimizer, kind: str, steps: int | None, *, run: int) -> Optimizer:
    """``optimizer`` with a schedule that starts at its learning rate; ``run`` is the number of updates to come."""
    from tenonnx.extend import InvalidCall
    from tenonnx_training.schedules import CosineDecay, LinearDecay, OneCycle, PolynomialDecay, StepDecay, WarmRestarts
    from tenonnx_training.updates import COUNT, UPDATES

    first: Any = optimizer.learning_rate
    if callable(first):
        raise InvalidCall(
            "--schedule was given without an initial learning rate",
            given="a schedule of the training so far",
            do="--lr 0.001, say",
        )
    tensors = {} if graph.training_state is None else graph.training_state.tensors
    counted = tensors.get(UPDATES, tensors.get(COUNT))
    done = 0 if counted is None else int(counted.array())
    steps = done + run if steps is None else steps
    makers: dict[str, Callable[[], Any]] = {
        "cosine": lambda: CosineDecay(first, steps),
        "linear": lambda: LinearDecay(first, 0.0, steps),
        "polynomial": lambda: PolynomialDecay(first, steps, 2.0),
        "one-cycle": lambda: OneCycle(first, steps),
        "restarts": lambda: WarmRestarts(first, steps),
        "step": lambda: StepDecay(first, steps),
    }
    rate = makers[kind]()
    return dataclasses.replace(optimizer, learning_rate=rate)  # type: ignore[type-var]


#: Kinds of schedules; the last two need a number of steps.
_SCHEDULES = ("cosine", "linear", "polynomial", "one-cycle", "step", "restarts")


def _schedule(ctx: click.Context, option: click.Parameter, text: str | None) -> tuple[str, int | None] | None:
    """Parse ``cosine:100`` into kind and steps."""
    if text is None:
        return None
    kind, colon, steps = text.partition(":")
    number = int(steps) if steps.isascii() and steps.isdigit() else 0
    counted = kind in ("step", "restarts")  # which need a number of steps
    if kind not in _SCHEDULES or (bool(colon) or counted) != (number > 0):
        kinds = ", ".join([*_SCHEDULES[:4], "cosine:100", *(f"{each}:100" for each in _SCHEDULES[4:])])
        raise click.BadParameter(f"{text!r} is not one of {kinds}", ctx, option)
    return kind, number or None


optimizer_options = in_order(
    click.option(
        "--learning-rate",
        "--lr",
        type=click.FloatRange(min=0),
        help="The learning rate.  [default: 0.001 of adam, adamw and lamb, 0.0001 of lion, 0.01 of the others]",
    ),
    click.option(
        "--schedule",
        metavar="KIND[:STEPS]",
        callback=_schedule,
        help="Learning rate schedule: cosine, linear and polynomial (squared) decay it to zero over STEPS updates, by "
        "default over the whole run; one-cycle raises it to --lr and lowers it again; step:100 divides it by ten after "
        "every 100 updates; restarts:100 repeats cosines of 100 updates.",
    ),
    click.option(
        "--weight-decay",
        type=click.FloatRange(min=0),
        help="The weight decay.  [default: 0.01 of adamw, 0 of the others]",
    ),
    gathered("optimizer", OptimizerOptions),
)
