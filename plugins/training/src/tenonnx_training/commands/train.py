"""``tenonnx train``: tune the weights of a model."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from tenonnx_cli.extend import (
    INTERRUPTED,
    Command,
    DeviceOptions,
    complain,
    config_options,
    device_options,
    is_quiet,
    json_option,
    load_model,
    model_argument,
    plural,
    quiet_option,
    say,
    say_json,
    version_options,
)
from tenonnx_training.commands.data import ClassOptions, DataOptions, class_options, data_options
from tenonnx_training.commands.files import TrainingFiles, file_options
from tenonnx_training.commands.names import losses, metrics, optimizers
from tenonnx_training.commands.optimizer import OptimizerOptions, optimizer_options
from tenonnx_training.config import TrainingConfig
from tenonnx_training.recipe import Group

if TYPE_CHECKING:
    from tenonnx_training.fitting import History
    from tenonnx_training.rate_finder import RateSearch


def _patterns(ctx: click.Context, option: click.Parameter, text: str | None) -> list[str] | None:
    """Parse ``head.*,!head.bias`` into patterns."""
    return None if text is None else [pattern.strip() for pattern in text.split(",")]


def _groups(ctx: click.Context, option: click.Parameter, texts: Sequence[str]) -> list[Group] | None:
    """Parse ``head.*:rate=10,weight_decay=0`` into a group."""
    found = []
    for text in texts:
        pattern, _, settings = text.rpartition(":")
        parts = [part.partition("=") for part in settings.split(",")]
        try:
            numbers = {name.strip(): float(number) for name, _, number in parts}
        except ValueError:
            numbers = {}
        if not pattern or not numbers or not numbers.keys() <= {"rate", "weight_decay"}:
            raise click.BadParameter(f"{text!r} is not a group such as head.*:rate=10,weight_decay=0", ctx, option)
        found.append(Group(pattern, **numbers))
    return found or None


#: Click settings of the options of a training, by kind.
_KINDS: Mapping[str, Mapping[str, Any]] = {
    "flag": {"is_flag": True},
    "text": {},
    "shown": {"show_default": True},
    "texts": {"multiple": True},
    "loss": {"shell_complete": losses},
    "metrics": {"multiple": True, "shell_complete": metrics},
    "optimizer": {"shell_complete": optimizers},
    "patterns": {"callback": _patterns},
    "groups": {"multiple": True, "callback": _groups},
    "epochs": {"type": click.IntRange(min=0), "show_default": True},
    "count": {"type": click.IntRange(min=0)},
    "number": {"type": click.IntRange(min=1)},
    "positive": {"type": click.FloatRange(min=0, min_open=True)},
    "share": {"type": click.FloatRange(min=0, max=1, max_open=True)},
    "whole_share": {"type": click.FloatRange(min=0, max=1)},
}


@click.command(
    "train",
    cls=Command,
    examples=[
        "tenonnx train model.onnx --data train.npz -o tuned.onnx",
        "tenonnx train model.onnx --data train.npz --validation 0.1 --metric accuracy --epochs 10 -o tuned.onnx",
    ],
)
@model_argument
@data_options
@file_options
@config_options(of=TrainingConfig, kinds=_KINDS)
@optimizer_options
@class_options
@device_options
@version_options
@quiet_option
@json_option
def command(
    model: str,
    data: DataOptions,
    files: TrainingFiles,
    optimizer: OptimizerOptions,
    classes: ClassOptions,
    where: DeviceOptions,
    opset_version: Mapping[str, int] | None,
    domains: Sequence[str] | None,
    as_json: bool,
    **options: Any,
) -> None:
    """Train a model on data and write it back with new weights and nothing else changed.

    Ctrl-C stops the training cleanly, with exit code 130: the model as trained so far is written, if there was a step.
    A training that diverges or fails otherwise, with exit code 2, leaves the model as of its last good epoch. A
    checkpoint that cannot be written gives a warning.
    """
    from tenonnx.extend import TenonnxError
    from tenonnx_cli.extend import data_file
    from tenonnx_data import is_table, read_table
    from tenonnx_training.data import samples_of
    from tenonnx_training.data_checks import InvalidSample
    from tenonnx_training.fitting import fit
    from tenonnx_training.measuring import finite
    from tenonnx_training.rate_finder import find_learning_rate
    from tenonnx_training.training_step import TrainingStep

    files.check()
    with _before_any_step():
        graph = load_model(model)
        files.take_state(graph)
        loss, validation = options["loss"], options["validation"]
        read = partial(data.read, graph, loss, output=options["output"], weights=options["sample_weights"])
        arrays = read()
        options |= {
            "loss": classes.loss(loss, graph.training_state),
            "optimizer": optimizer.build(
                graph, samples_of(arrays), options["epochs"], options["batch_size"], options["accumulate"]
            ),
            "validation": None if validation is None else read(validation=validation),
            "teacher": None if options["teacher"] is None else load_model(options["teacher"]),
            "checkpoint": files.checkpoint,
            "callbacks": files.callbacks,
            "progress": None if as_json else not is_quiet(),
        }
        config = TrainingConfig(**options)
        if files.emit_step is not None:
            fields = {} if opset_version is None else {"opset_version": opset_version}
            TrainingStep(graph, config=config, **where.options).export(files.emit_step, domains=domains, **fields)
        if files.rates is not None:
            _say_rate(model, find_learning_rate(graph, arrays, config=config, **where.options), files, as_json=as_json)
            return
        before = graph.training_state
        try:
            history = fit(graph, arrays, config=config, **where.options)
        except InvalidSample as error:
            if is_table(data.data):
                error.also = read_table(data.data, data_file).location(error.sample)
            raise
        except (TenonnxError, OSError):
            if graph.training_state is not before and files.output_file is not None:
                files.write(graph)
                complain(f"the model of the last good epoch was written to {files.output_file}")
            raise
        if history.interrupted and not history.losses:
            raise KeyboardInterrupt
    files.write(graph)
    if history.checkpoint_error is not None:
        if files.output_file is None:
            raise history.checkpoint_error
        files = replace(files, checkpoint=None)
    if as_json:
        epochs = [finite(epoch) for epoch in history.epochs]
        report = {"epochs": epochs, "interrupted": history.interrupted, "learning_rate": None}
        say_json({"file": model, **report, **files.written})
    else:
        for note in history.notes:
            complain(f"note: {note}")
        for name, path in files.written.items():
            if path is not None:
                say(f"{name}: {path}")
    if history.interrupted:
        _say_how_to_resume(history, files)
        raise click.exceptions.Exit(INTERRUPTED)


def _say_rate(model: str, search: RateSearch, files: TrainingFiles, *, as_json: bool) -> None:
    """Print the learning rate that a range test suggests, and plot its losses."""
    assert files.rates is not None
    suggestion = search.suggestion
    search.save(files.rates)
    if as_json:
        report = {"epochs": [], "interrupted": False, "learning_rate": suggestion}
        say_json({"file": model, **report, **files.written})
        return
    say(f"learning rate: {suggestion:.2g} (--lr {suggestion:.2g})")
    say(f"rates: {files.rates}")


@contextlib.contextmanager
def _before_any_step() -> Iterator[None]:
    """Report on Ctrl-C that no step was made, so that there is nothing to resume."""
    try:
        yield
    except KeyboardInterrupt:
        complain("interrupted before the first step: nothing was trained, run the same command again")
        raise


def _say_how_to_resume(history: History, files: TrainingFiles) -> None:
    saved = files.checkpoint or (files.output_file if files.include_training_state else None)
    advice = f"resume with --resume {saved}" if saved else "use --checkpoint FILE to be able to resume"
    complain(f"interrupted after {plural(len(history.losses), 'step')}: {advice}")
