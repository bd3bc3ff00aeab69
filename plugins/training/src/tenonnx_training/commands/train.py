"""``tenonnx train``: tune the weights of a model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from tenonnx.cli.options import json_option, load_model, model_argument
from tenonnx.cli.output import complain, plural, say, say_json

if TYPE_CHECKING:
    from tenonnx.graph.graph import Graph
    from tenonnx_training.fitting import History
    from tenonnx_training.optimizers import Optimizer


@click.command("train")
@model_argument
@click.option(
    "--data", required=True, metavar="FILE", help="A .npz file: arrays of the inputs by name, and the target."
)
@click.option("-o", "--output", metavar="FILE", help="The tuned model: .onnx, or .safetensors for our native format.")
@click.option(
    "--loss", required=True, metavar="NAME", help="A loss such as softmax_cross_entropy, or a scalar of the model."
)
@click.option("--of", metavar="VALUE", help="The value that the loss reads; by default the first output of floats.")
@click.option("--target", "target", default="target", metavar="NAME", help="The name of the target in the data.")
@click.option(
    "--optimizer", default="adam", metavar="NAME", help="sgd, momentum, adagrad, adam (the default) or adamw."
)
@click.option("--lr", type=click.FloatRange(min=0), help="The learning rate, in place of the optimizer's default.")
@click.option("--weight-decay", type=click.FloatRange(min=0), help="Likewise the weight decay.")
@click.option(
    "--clip-norm", type=click.FloatRange(min=0, min_open=True), help="Bound the norm of all gradients together."
)
@click.option("--trainable", metavar="A,B", help="Patterns of variables to train; by default all that have axes.")
@click.option("--epochs", type=click.IntRange(min=0), default=1, help="How many (more) epochs to train.")
@click.option("--batch-size", type=click.IntRange(min=1), default=32)
@click.option("--validation", metavar="FILE", help="A .npz file like --data, to measure by after each epoch.")
@click.option("--metric", "metrics", multiple=True, metavar="NAME", help="accuracy ... Repeatable.")
@click.option("--checkpoint", metavar="FILE", help="A .safetensors file that is written after each epoch.")
@click.option("--resume", metavar="FILE", help="Go on from this model or checkpoint, which carries training state.")
@click.option("--include-training-state", is_flag=True, help="Write what it takes to go on into the output, too.")
@click.option("--emit-step", metavar="FILE", help="Write the training step as a plain ONNX file.")
@click.option("--seed", type=click.IntRange(min=0), help="Seed of the shuffling and of random ops.")
@click.option("--backend", default="auto", metavar="NAME", help="auto (the default), numpy, onnxruntime ...")
@json_option
def command(
    model: str,
    data: str,
    output: str | None,
    loss: str,
    of: str | None,
    target: str,
    optimizer: str,
    lr: float | None,
    weight_decay: float | None,
    clip_norm: float | None,
    trainable: str | None,
    epochs: int,
    batch_size: int,
    validation: str | None,
    metrics: Sequence[str],
    checkpoint: str | None,
    resume: str | None,
    include_training_state: bool,
    emit_step: str | None,
    seed: int | None,
    backend: str,
    as_json: bool,
) -> None:
    """Tune the weights of a model on data, and write it back with nothing else changed.

    Ctrl-C ends the training in order: what was learned so far is written.
    """
    import tenonnx as tx
    from tenonnx.cli.arrays import read_archive
    from tenonnx_training.fitting import fit
    from tenonnx_training.step import Objective
    from tenonnx_training.training_step import TrainingStep

    graph = load_model(model)
    if resume is not None:
        _take_state(graph, load_model(resume))
    patterns = None if trainable is None else trainable.split(",")
    options: dict[str, Any] = {"trainable": patterns, "clip_norm": clip_norm, "backend": backend}
    chosen = _optimizer(optimizer, lr, weight_decay)
    arrays = _named(graph, read_archive(data), target, data)
    if emit_step is not None:
        step = TrainingStep(graph, Objective(loss, of, target, metrics), chosen, seed=seed, **options)
        step.export(emit_step)
    history = fit(
        graph,
        arrays,
        loss=loss,
        optimizer=chosen,
        epochs=epochs,
        batch_size=batch_size,
        output=of,
        target=target,
        metrics=metrics,
        validation=None if validation is None else _named(graph, read_archive(validation), target, validation),
        checkpoint=checkpoint,
        seed=seed,
        **options,
    )
    if output is not None:
        if output.lower().endswith(".safetensors"):
            graph.save(output)
        else:
            tx.export(graph, output, include_training_state=include_training_state)
    written = {"output": output, "checkpoint": checkpoint, "step": emit_step}
    if as_json:
        say_json({"file": model, "epochs": history.epochs, "interrupted": history.interrupted, **written})
        return
    _say_history(history)
    for name, path in written.items():
        if path is not None:
            say(f"{name}: {path}")


def _say_history(history: History) -> None:
    for note in history.notes:
        complain(f"note: {note}")
    for number, measured in enumerate(history.epochs):
        say(f"epoch {number}: " + ", ".join(f"{name} {value:.4g}" for name, value in measured.items()))
    if history.interrupted:
        complain(f"interrupted after {plural(len(history.losses), 'step')}")


def _take_state(graph: Graph, source: Graph) -> None:
    """Give ``graph`` the trained contents and the training state of ``source``."""
    from tenonnx.errors import InvalidCall

    if source.training_state is None:
        raise InvalidCall(
            "--resume must name a file with training state",
            given=f"one without: {source.name}",
            do="train with --checkpoint, or with --include-training-state",
        )
    held = {value.name: value for value in graph.variables}
    taken = {v.name: v.data.array() for v in source.variables if v.name in held and v.data is not None}
    graph.assign(taken)
    graph.training_state = source.training_state


def _optimizer(name: str, rate: float | None, decay: float | None) -> Optimizer:
    import dataclasses

    from tenonnx_training.training_step import as_optimizer

    given = {"learning_rate": rate, "weight_decay": decay}
    changes: dict[str, Any] = {key: value for key, value in given.items() if value is not None}
    return dataclasses.replace(as_optimizer(name), **changes)  # type: ignore[type-var]


def _named(graph: Graph, arrays: dict[str, Any], target: str, path: str) -> dict[str, Any]:
    """The arrays that training reads: the inputs of the model and the target."""
    from tenonnx.errors import InvalidCall

    inputs = [value.name for value in graph.inputs]
    missing = [name for name in inputs if name not in arrays]
    others = [name for name in arrays if name not in inputs]
    if missing:
        raise InvalidCall(
            f'{path} must hold every input of the model, and "{missing[0]}" is not there', available=", ".join(arrays)
        )
    if target in arrays:
        others = [target]
    if len(others) > 1:
        raise InvalidCall(
            f"{path} must have one array beside the inputs, or say which one is the target",
            given=", ".join(others),
            do=f"--target {others[0]}",
        )
    return {name: arrays[name] for name in (*inputs, *others)}
