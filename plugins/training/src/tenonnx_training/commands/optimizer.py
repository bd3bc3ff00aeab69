"""The optimizer of ``tenonnx train``: by name, or that of the training so far, with what is given of its settings."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import click

from tenonnx_cli.extend import gathered, in_order

if TYPE_CHECKING:
    from tenonnx.extend import Graph
    from tenonnx_training.optimizers import Optimizer


@dataclasses.dataclass(frozen=True)
class OptimizerOptions:
    """An optimizer by name and what is said of it. ``schedule`` is a kind and its steps, None for the whole run."""

    optimizer: str | None
    learning_rate: float | None
    weight_decay: float | None
    schedule: tuple[str, int | None] | None

    def made(self, graph: Graph, samples: int, epochs: int, batch_size: int | None) -> Optimizer:
        """The optimizer that trains ``graph`` for so many epochs of so many samples."""
        from tenonnx_training.settings import named_optimizer, settled

        given = {"learning_rate": self.learning_rate, "weight_decay": self.weight_decay}
        changes = {name: value for name, value in given.items() if value is not None}
        found = named_optimizer(self.optimizer, graph.training_state, changes)
        if self.schedule is None:
            return found
        cutting, _ = settled(graph.training_state, {"batch_size": batch_size})
        return _scheduled(graph, found, *self.schedule, run=epochs * -(-samples // int(cutting["batch_size"])))


def _scheduled(graph: Graph, optimizer: Optimizer, kind: str, steps: int | None, *, run: int) -> Optimizer:
    """``optimizer`` with a schedule that begins with its learning rate; ``run`` are the steps to come."""
    from tenonnx.extend import InvalidCall
    from tenonnx_training.schedules import CosineDecay, LinearDecay, StepDecay
    from tenonnx_training.updates import COUNT

    first: Any = optimizer.learning_rate
    if callable(first):
        raise InvalidCall(
            "--schedule needs a learning rate to begin with", given="a schedule of the training so far",
            do="--lr 0.001, say",
        )  # fmt: skip
    done = 0 if graph.training_state is None else int(graph.training_state.tensors[COUNT].array())
    steps = done + run if steps is None else steps
    made = {"cosine": CosineDecay(first, steps), "linear": LinearDecay(first, 0.0, steps)}
    rate = made.get(kind, StepDecay(first, steps))
    return dataclasses.replace(optimizer, learning_rate=rate)  # type: ignore[type-var]


def _schedule(ctx: click.Context, option: click.Parameter, text: str | None) -> tuple[str, int | None] | None:
    """``cosine:100`` as kind and steps."""
    if text is None:
        return None
    kind, colon, steps = text.partition(":")
    number = int(steps) if steps.isascii() and steps.isdigit() else 0
    if kind not in ("cosine", "linear", "step") or (bool(colon) or kind == "step") != (number > 0):
        raise click.BadParameter(f"{text!r} is none of cosine, linear, cosine:100, linear:100, step:100", ctx, option)
    return kind, number or None


optimizer_options = in_order(
    click.option(
        "--learning-rate", "--lr", type=click.FloatRange(min=0),
        help="The learning rate.  [default: 0.001 of adam, adamw and lamb, 0.0001 of lion, 0.01 of the others]",
    ),
    click.option(
        "--schedule", metavar="KIND[:STEPS]", callback=_schedule,
        help="Learning rate schedule: cosine and linear decay it to zero over STEPS steps, by default over the whole "
        "run; step:100 divides it by ten after every 100 steps.",
    ),
    click.option(
        "--weight-decay", type=click.FloatRange(min=0),
        help="The weight decay.  [default: 0.01 of adamw, 0 of the others]",
    ),
    gathered("optimizer", OptimizerOptions),
)  # fmt: skip
