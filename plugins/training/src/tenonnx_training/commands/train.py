"""``tenonnx train``: tune the weights of a model."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from tenonnx_cli.extend import (
    INTERRUPTED,
    complain,
    json_option,
    load_model,
    model_argument,
    plural,
    say,
    say_json,
    version_options,
)
from tenonnx_training.commands.data import class_options, data_options, read_data, told

if TYPE_CHECKING:
    from tenonnx.extend import Graph
    from tenonnx_training.optimizers import Optimizer
    from tenonnx_training.recipe import Group


def _schedule(ctx: click.Context, option: click.Parameter, text: str | None) -> tuple[str, int | None] | None:
    """``cosine:100`` as kind and steps."""
    if text is None:
        return None
    kind, colon, steps = text.partition(":")
    number = int(steps) if steps.isascii() and steps.isdigit() else 0
    if kind not in ("cosine", "linear", "step") or (bool(colon) or kind == "step") != (number > 0):
        raise click.BadParameter(f"{text!r} is none of cosine, linear, cosine:100, linear:100, step:100", ctx, option)
    return kind, number or None


def _groups(ctx: click.Context, option: click.Parameter, texts: Sequence[str]) -> list[Group] | None:
    """``head.*:rate=10,weight_decay=0`` as a group."""
    from tenonnx_training.recipe import Group

    found = []
    for text in texts:
        pattern, _, settings = text.rpartition(":")
        parts = [part.partition("=") for part in settings.split(",")]
        try:
            numbers = {name.strip(): float(number) for name, _, number in parts}
        except ValueError:
            numbers = {}
        if not pattern or not numbers or not numbers.keys() <= {"rate", "weight_decay"}:
            raise click.BadParameter(f"{text!r} is no group such as head.*:rate=10,weight_decay=0", ctx, option)
        found.append(Group(pattern, **numbers))
    return found or None


@click.command("train")
@model_argument
@data_options
@click.option(
    "-o",
    "--output",
    metavar="FILE",
    help="The trained model: a .onnx file, or a .safetensors file in the native format of tenonnx.",
)
@click.option(
    "--loss",
    metavar="NAME",
    help="softmax_cross_entropy, negative_log_likelihood, mean_squared_error, mean_absolute_error, "
    "binary_cross_entropy, or the name of a scalar value of the model. Required unless --resume is given.",
)
@click.option(
    "--of", metavar="VALUE", help="The value that goes into the loss; by default the first floating-point output."
)
@click.option(
    "--labels",
    metavar="NAME",
    help='The array or column of --data with the labels; by default "labels", or the only one that is not an input.',
)
@click.option(
    "--optimizer",
    metavar="NAME",
    help="sgd, momentum, adagrad, adam, adamw, rmsprop, lion or lamb.  [default: adam, or that of --resume]",
)
@click.option(
    "--learning-rate",
    "--lr",
    type=click.FloatRange(min=0),
    help="The learning rate.  [default: 0.001 of adam, adamw and lamb, 0.0001 of lion, 0.01 of the others]",
)
@click.option(
    "--schedule",
    metavar="KIND[:STEPS]",
    callback=_schedule,
    help="Learning rate schedule: cosine and linear decay it to zero over STEPS steps, by default over the whole "
    "run; step:100 divides it by ten after every 100 steps.",
)
@click.option(
    "--weight-decay", type=click.FloatRange(min=0), help="The weight decay.  [default: 0.01 of adamw, 0 of the others]"
)
@click.option("--clip-norm", type=click.FloatRange(min=0, min_open=True), help="Clip gradients by their global norm.")
@click.option("--clip-value", type=click.FloatRange(min=0, min_open=True), help="Clip every element of the gradients.")
@click.option(
    "--trainable",
    metavar="A,B",
    help="Patterns of initializers to train, or of nodes that use them; !PATTERN excludes.  [default: all with axes]",
)
@click.option(
    "--group",
    "groups",
    multiple=True,
    callback=_groups,
    metavar="PATTERN:rate=N,weight_decay=N",
    help="Parameter group: multiply the learning rate of the matching initializers by N, or give them their own "
    "weight decay. Repeatable; the first match applies.",
)
@click.option(
    "--untie", is_flag=True, help="Separate the initializers that the exporter merged because they were equal."
)
@click.option(
    "--frozen-statistics/--no-frozen-statistics",
    default=None,
    help="BatchNormalization uses its running statistics and does not update them.  [default: if neither its scale "
    "nor its bias is trained]",
)
@click.option(
    "--unbiased-statistics/--no-unbiased-statistics",
    default=None,
    help="Update running variances with the unbiased variance of a batch, divided by n - 1, as PyTorch does.  "
    "[default: divided by n, as ONNX specifies]",
)
@click.option(
    "--epochs",
    type=click.IntRange(min=0),
    default=1,
    show_default=True,
    help="Number of epochs to train; with --resume, further ones.",
)
@click.option("--batch-size", type=click.IntRange(min=1), help="Batch size.  [default: 32, or that of --resume]")
@click.option(
    "--validation", metavar="PATH", help="Validation data, in the format of --data, evaluated after each epoch."
)
@class_options
@click.option(
    "--metric",
    "metrics",
    multiple=True,
    metavar="NAME",
    help="accuracy, top_5, f1, roc_auc, perplexity or mean_absolute_error; repeatable.",
)
@click.option(
    "--patience",
    type=click.IntRange(min=1),
    metavar="EPOCHS",
    help="Early stopping: stop after this many epochs without a better (validation) loss, and restore the best "
    "weights.",
)
@click.option("--sample-weights", metavar="NAME", help="The array or column of --data with a weight for each sample.")
@click.option(
    "--accumulate",
    type=click.IntRange(min=1),
    metavar="BATCHES",
    help="Gradient accumulation: update with the mean gradient of this many batches.",
)
@click.option(
    "--average",
    type=click.FloatRange(min=0, max=1, max_open=True),
    metavar="SHARE",
    help="Exponential moving average of the weights with this decay, such as 0.999, for validation and --output.",
)
@click.option(
    "--precision",
    metavar="TYPE",
    help="Mixed precision: compute matrix products and convolutions in float32, bfloat16 or float16.",
)
@click.option(
    "--recompute",
    metavar="A,B",
    help="Activation checkpointing: patterns of nodes, such as */layer.0/*,*/layer.1/*, whose values are computed "
    "again in the backward pass, which saves memory and takes time.",
)
@click.option("--checkpoint", metavar="FILE", help="Write a .safetensors checkpoint after each epoch.")
@click.option(
    "--resume",
    metavar="FILE",
    help="Continue training from this model or checkpoint, which must hold training state, with the same settings "
    "unless options override them.",
)
@click.option(
    "--keep-training-form",
    is_flag=True,
    help="Write BatchNormalization and Dropout in training mode if the file was exported so. By default they are "
    "written in inference mode.",
)
@click.option(
    "--include-training-state",
    is_flag=True,
    help="Also write the training state into --output, so that --resume can continue from it.",
)
@click.option(
    "--emit-step", metavar="FILE", help="Write the training step as an ONNX model, for --opset and --domains."
)
@version_options
@click.option(
    "--seed",
    type=click.IntRange(min=0),
    help="Seed for shuffling and random ops.  [default: 0, or that of --resume]",
)
@click.option("--backend", default="auto", show_default=True, metavar="NAME", help="auto, numpy, onnxruntime ...")
@json_option
def command(
    model: str,
    data: str,
    output: str | None,
    loss: str | None,
    of: str | None,
    labels: str | None,
    optimizer: str | None,
    learning_rate: float | None,
    schedule: tuple[str, int | None] | None,
    weight_decay: float | None,
    clip_norm: float | None,
    clip_value: float | None,
    trainable: str | None,
    groups: list[Group] | None,
    untie: bool,
    frozen_statistics: bool | None,
    unbiased_statistics: bool | None,
    epochs: int,
    batch_size: int | None,
    validation: str | None,
    metrics: Sequence[str],
    ignore_index: int | None,
    class_axis: int | None,
    patience: int | None,
    sample_weights: str | None,
    accumulate: int | None,
    average: float | None,
    precision: str | None,
    recompute: str | None,
    checkpoint: str | None,
    resume: str | None,
    keep_training_form: bool,
    include_training_state: bool,
    emit_step: str | None,
    opset_version: Mapping[str, int] | None,
    domains: Sequence[str] | None,
    seed: int | None,
    backend: str,
    as_json: bool,
    **images: Any,
) -> None:
    """Train a model on data and write it back with new weights and nothing else changed.

    Ctrl-C stops the training cleanly, with exit code 130: the model as trained so far is written, if there was a step.
    """
    import tenonnx as tx
    from tenonnx_training.data import samples_of
    from tenonnx_training.fitting import fit
    from tenonnx_training.training_step import TrainingStep

    _check_paths(output, checkpoint, emit_step)
    with _nothing_learned():
        graph = load_model(model)
        if resume is not None:
            _take_state(graph, load_model(resume), resume)
        how: dict[str, Any] = {"weights": sample_weights, "of": of, **images}
        arrays = read_data(graph, data, labels, loss, **how)
        chosen = _optimizer(graph, optimizer, learning_rate, weight_decay)
        if schedule is not None:
            batches = -(-samples_of(arrays) // _batch_size(graph, batch_size))
            chosen = _scheduled(graph, chosen, *schedule, run=epochs * batches)
        options: dict[str, Any] = {
            "loss": told(loss, ignore_index, class_axis),
            "optimizer": chosen,
            "output": of,
            "metrics": metrics,
            "trainable": _listed(trainable),
            "groups": groups,
            "clip_norm": clip_norm,
            "clip_value": clip_value,
            "accumulate": accumulate,
            "average": average,
            "precision": precision,
            "recompute": _listed(recompute),
            "sample_weights": sample_weights,
            "frozen_statistics": frozen_statistics,
            "unbiased_statistics": unbiased_statistics,
            "seed": seed,
            "untie": untie,
            "keep_training_form": keep_training_form,
            "backend": backend,
        }
        if emit_step is not None:
            fields = {} if opset_version is None else {"opset_version": opset_version}
            TrainingStep(graph, **options).export(emit_step, domains=domains, **fields)
        history = fit(
            graph,
            arrays,
            epochs=epochs,
            batch_size=batch_size,
            validation=None if validation is None else read_data(graph, validation, labels, loss, like=data, **how),
            patience=patience,
            checkpoint=checkpoint,
            progress=None if as_json else True,
            **options,
        )
        if history.interrupted and not history.losses:
            raise KeyboardInterrupt
    if output is not None:
        if output.lower().endswith(".safetensors"):
            graph.save(output)
        else:
            tuned = graph if include_training_state else _for_use(graph)
            tx.export(tuned, output, include_training_state=include_training_state)
    written = {"output": output, "checkpoint": checkpoint, "step": emit_step}
    if as_json:
        say_json({"file": model, "epochs": history.epochs, "interrupted": history.interrupted, **written})
    else:
        for note in history.notes:
            complain(f"note: {note}")
        for name, path in written.items():
            if path is not None:
                say(f"{name}: {path}")
    if history.interrupted:
        held = checkpoint or (output if include_training_state else None)
        advice = f"--resume {held} goes on" if held else "with --checkpoint FILE it could be resumed"
        complain(f"interrupted after {plural(len(history.losses), 'step')}: {advice}")
        raise click.exceptions.Exit(INTERRUPTED)


@contextlib.contextmanager
def _nothing_learned() -> Iterator[None]:
    """Say on Ctrl-C that there is nothing to go on from yet."""
    try:
        yield
    except KeyboardInterrupt:
        complain("interrupted before the first step: nothing was learned, and the same command begins anew")
        raise


def _listed(text: str | None) -> list[str] | None:
    return None if text is None else [pattern.strip() for pattern in text.split(",")]


def _for_use(graph: Graph) -> Graph:
    """``graph``, with the moving averages in place of the weights where its training kept them."""
    from tenonnx_training.state import averaged

    held = graph.training_state is not None and graph.training_state.settings.get("average")
    return averaged(graph) if held else graph


def _check_paths(output: str | None, checkpoint: str | None, emit_step: str | None) -> None:
    """Raise ``InvalidCall``, before a long training, where its results go nowhere or to a place that takes none."""
    from tenonnx.extend import InvalidCall
    from tenonnx.extend.formats import check_output
    from tenonnx_cli.extend import SUFFIXES

    kinds = {
        "--output": (output, SUFFIXES),
        "--checkpoint": (checkpoint, SUFFIXES[1:]),
        "--emit-step": (emit_step, ("",)),
    }
    if not any(path for path, _ in kinds.values()):
        raise InvalidCall(
            "a training must write what it learns", given="none of these options", available=", ".join(kinds),
            do="name a file: -o tuned.onnx",
        )  # fmt: skip
    for option, (path, suffixes) in kinds.items():
        if path is None:
            continue
        if not path.lower().endswith(suffixes):
            raise InvalidCall(f"{option} must name a file of a known format", given=path, available=", ".join(suffixes))
        check_output(path)


def _take_state(graph: Graph, source: Graph, path: str) -> None:
    """Give ``graph`` the trained contents and the training state of ``source``."""
    from tenonnx.extend import InvalidCall
    from tenonnx_training.state import assign_changed

    if source.training_state is None:
        raise InvalidCall(
            "--resume must name a file with training state",
            given=f"{path}, which has none",
            do="train with --checkpoint, or with --include-training-state",
        )
    held = {value.name: value for value in graph.variables}
    taken = {v.name: v.data.array() for v in source.variables if v.name in held and v.data is not None}
    assign_changed(graph, taken)
    graph.training_state = source.training_state


def _optimizer(graph: Graph, name: str | None, rate: float | None, decay: float | None) -> Optimizer:
    """The optimizer of that name, or that of the training so far, with what is given of its settings."""
    from tenonnx_training.settings import named_optimizer

    given = {"learning_rate": rate, "weight_decay": decay}
    changes = {key: value for key, value in given.items() if value is not None}
    return named_optimizer(name, graph.training_state, changes)


def _batch_size(graph: Graph, given: int | None) -> int:
    from tenonnx_training.settings import settled

    return int(settled(graph.training_state, {"batch_size": given})[0]["batch_size"])


def _scheduled(graph: Graph, optimizer: Optimizer, kind: str, steps: int | None, *, run: int) -> Optimizer:
    """``optimizer`` with a schedule that begins with its learning rate; ``run`` are the steps to come."""
    import dataclasses

    from tenonnx.extend import InvalidCall
    from tenonnx_training.schedules import CosineDecay, LinearDecay, StepDecay
    from tenonnx_training.updates import COUNT

    first: Any = optimizer.learning_rate
    if callable(first):
        raise InvalidCall("--schedule must know where to begin", given="a schedule before", do="--lr 0.001, say")
    done = 0 if graph.training_state is None else int(graph.training_state.tensors[COUNT].array())
    steps = done + run if steps is None else steps
    made = {"cosine": CosineDecay(first, steps), "linear": LinearDecay(first, 0.0, steps)}
    rate = made.get(kind, StepDecay(first, steps))
    return dataclasses.replace(optimizer, learning_rate=rate)  # type: ignore[type-var]
