"""``tenonnx convert``: the same model at another opset, for other domains, or in another format."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tenonnx_cli.deadline import within
from tenonnx_cli.options import (
    FILE,
    TransformingCommand,
    config_options,
    input_options,
    json_option,
    load_model,
    loading_options,
    model_argument,
    note_unused,
    transforms_given,
)
from tenonnx_cli.output import complain, plural, results_aside, say, say_json, standard_output, working
from tenonnx_cli.python_model import Made, check_reading, is_made, load_made, made_options
from tenonnx_cli.verifications import said_of_inputs, say_comparison

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tenonnx import Report
    from tenonnx_optimize.precision import Lowered


#: What a model can be written as.
SUFFIXES = (".onnx", ".safetensors")


@click.command("convert", cls=TransformingCommand)
@model_argument
@click.option(
    "-o",
    "--output",
    type=FILE,
    required=True,
    metavar="FILE",
    help="A .onnx file, or a .safetensors file in the native format of tenonnx; - for standard output.",
)
@made_options
@click.option(
    "--trust",
    is_flag=True,
    help="Read a pickle or joblib file of an estimator (needs tenonnx-sklearn), which runs the code in the file. Files "
    "of skops need no trust.",
)
@click.option(
    "--load",
    "loading",
    multiple=True,
    metavar="NAME=VALUE",
    help="An option of what reads the model, as tx.load takes it, perhaps in JSON: inputs=columns, zipmap=true and "
    "dtype=float64 of an estimator, signature=score of a SavedModel. Repeatable.",
)
@input_options
@config_options()
@json_option
def command(
    model: str,
    output: str,
    examples: Sequence[str],
    dims: str | None,
    task: str | None,
    input_names: Sequence[str] | None,
    output_names: Sequence[str] | None,
    fold: bool | None,
    trust: bool,
    loading: Sequence[str],
    inputs: Sequence[str],
    archive: str | None,
    as_json: bool,
    **options: Any,
) -> None:
    """Convert a model to another opset, set of domains, precision or file format.

    MODEL is a file, or FILE.py:FUNCTION for a function that returns a model, such as a PyTorch module (needs
    tenonnx-torch). The Python file is executed: use only files that you trust. A .joblib, .pkl or .skops file of an
    estimator is read by tenonnx-sklearn, and compared with the estimator.

    Prints how each node was changed. Nothing is written if a node cannot be expressed in the target, or if the outputs
    of the converted model differ from the original's.
    """
    from tenonnx import ConvertConfig
    from tenonnx.tools import STEPS, Conversion
    from tenonnx_cli.arrays import read_feeds

    if not options["layout"]:
        check_output(output, model)
    config = ConvertConfig(transforms=transforms_given(), **options)
    reading = {
        "dims": dims, "task": task, "input_names": input_names, "output_names": output_names, "simplify": fold,
    }  # fmt: skip
    check_reading(model, examples, reading)
    given = loading_options(loading)
    made = (
        load_made(model, examples, config.seed, {**reading, **given})
        if is_made(model)
        else Made(load_model(model, trust=trust, **given), None)
    )
    with working(f"converting {model}"), within(config.timeout) as deadline:
        config = replace(config, feeds=read_feeds(made.graph, inputs, archive) or None)
        file = standard_output() if output == "-" else output
        conversion = Conversion(made.graph, file, config, STEPS, verifier=made.verifier, name=model)
        conversion.run(until="write")
        deadline.met()  # what is written now is not to be interrupted
        report = conversion.run().report
    for note in report.notes:
        complain(note)
    note_unused(options["opset_version"], report.opsets)
    if as_json:
        say_json({"file": model, "output": output, **report.to_json()})
    else:
        _say_report(output, report)
        say_comparison(report, model, conversion.changed_by, said_of_inputs(config.feeds is not None, config.seed))
        if "half_precision" in report.findings:
            _say_half(report.findings["half_precision"])


def check_output(output: str, *inputs: str) -> None:
    """Raise ``InvalidCall`` for a file of no known format, and for one that is an input of the command."""
    from tenonnx import InvalidCall

    path = Path(output)
    if output == "-":
        results_aside()
        return
    if not output.lower().endswith(SUFFIXES) and not path.is_dir():
        raise InvalidCall("unknown file format", given=output, available=", ".join(SUFFIXES))
    note_replaced(output, inputs)


def note_replaced(output: str, inputs: Iterable[str]) -> None:
    """Say that a file which is read will be written, too."""
    path = Path(output)
    if path.exists() and any(each and Path(each).exists() and path.samefile(each) for each in inputs):
        complain(f"note: {output} is an input of this command, and will be replaced")


def _say_report(output: str, report: Report) -> None:
    from tenonnx_cli.changes import say_changes

    opsets = ", ".join(f"{domain} {version}" for domain, version in report.opsets.items())
    kept = len(report.changes) - len(report.rewritten)
    say(f"{output}: opsets {opsets}, IR {report.ir_version}")
    say(f"{plural(kept, 'node')} kept, {plural(len(report.rewritten), 'node')} rewritten")
    for what in report.notes_left_out:
        say(f"left out, as IR {report.ir_version} does not support it: {what}")
    say_changes(report.changes)


def _say_half(lowered: Lowered) -> None:
    """Print what half precision did: which nodes stay in float32 and why, what was clipped, what was measured."""
    reasons: dict[str, list[str]] = {}
    for label, reason in lowered.kept.items():
        reasons.setdefault(reason, []).append(label)
    for reason, labels in reasons.items():
        named = ", ".join(f'"{label}"' for label in labels[:5])
        more = f" and {len(labels) - 5:,} more" if len(labels) > 5 else ""
        say(f"in float32: {plural(len(labels), 'node')} ({named}{more}): {reason}")
    if lowered.clipped:
        say(f"clipped to the range of the type: {', '.join(lowered.clipped)}")
    for note in lowered.notes:
        say(note)
