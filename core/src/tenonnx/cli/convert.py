"""``tenonnx convert``: the same model at another opset, for other domains, or in another format."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tenonnx.cli.made import is_made, load_made
from tenonnx.cli.options import (
    InputShapes,
    TransformingCommand,
    fuse_option,
    has_more_ops,
    input_options,
    json_option,
    load_model,
    model_argument,
    note_unused,
    overwrite_option,
    seed_option,
    shapes_option,
    target_options,
    tolerance_options,
    transformed,
)
from tenonnx.cli.output import complain, plural, say, say_json, working
from tenonnx.cli.shaping import Comparison, Shaping, shaping_options

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from tenonnx.checks.verify import Verification
    from tenonnx.formats.export import ExportConfig, Report
    from tenonnx.graph.graph import Graph
    from tenonnx.transforms.precision import Lowered


#: What a model can be written as.
SUFFIXES = (".onnx", ".safetensors")


@click.command("convert", cls=TransformingCommand)
@model_argument
@click.option(
    "-o", "--output", required=True, metavar="FILE", help="A .onnx file, or .safetensors for our native format."
)
@click.option(
    "--example", "examples", multiple=True, metavar="DIMS",
    help="For MODEL as FILE.py:FUNCTION, the shape of an argument of the model that the function returns: 1,3,224,224, "
    "or with an element type and names of dims that vary int64:batch=2,16. Or a .npy file. Repeatable, in order.",
)  # fmt: skip
@target_options
@click.option(
    "--verify/--no-verify", "wanted", default=None,
    help="Compare the numbers of both models before anything is written. By default that is done where both can run.",
)  # fmt: skip
@input_options
@shapes_option
@seed_option
@tolerance_options
@click.option(
    "--external-data-threshold", type=click.IntRange(min=0), metavar="BYTES",
    help="Put tensors of at least so many bytes in a data file beside the model.",
)  # fmt: skip
@overwrite_option
@fuse_option
@click.option(
    "--fuse-also", multiple=True, metavar="OP",
    help="Look for an op that few runtimes have, too, such as GroupNormalization, SimplifiedLayerNormalization or "
    "com.microsoft::QLinearAdd. Repeatable.",
)  # fmt: skip
@click.option(
    "--functions", type=click.Choice(["keep", "inline", "vendor"]), default="keep", show_default=True,
    help="What becomes of functions that the model defines for itself; vendor also writes what ops of other packages "
    "mean as such functions, so that the model needs no package.",
)  # fmt: skip
@click.option("--ir-version", type=click.IntRange(min=1), metavar="N", help="The IR version of the file.")
@shaping_options
@click.option("--tidy", is_flag=True, help="Also sort nodes, declare every domain and write every type.")
@json_option
def command(
    model: str,
    output: str,
    examples: Sequence[str],
    opset_version: Mapping[str, int] | None,
    domains: Sequence[str] | None,
    target: str | None,
    wanted: bool | None,
    inputs: Sequence[str],
    archive: str | None,
    input_shapes: InputShapes,
    seed: int,
    absolute: float | None,
    relative: float | None,
    external_data_threshold: int | None,
    overwrite: bool,
    fuse: bool | None,
    fuse_also: Sequence[str],
    functions: str,
    ir_version: int | None,
    tidy: bool,
    as_json: bool,
    **asked: Any,
) -> None:
    """Write a model for another opset, domains or format.

    MODEL is a file, or FILE.py:FUNCTION for a function that returns a model, such as a module of PyTorch (with the
    package tenonnx-torch). The Python file is run, so that it must be your own or one that you trust.

    Prints what became of each node that could not stay as it was. Nothing is written when a node has no form in the
    target, or when the result does not give the numbers of the original.
    """
    from tenonnx.cli.arrays import read_feeds
    from tenonnx.errors import InvalidCall
    from tenonnx.formats.export import ExportConfig

    check_output(output, model)
    shaping = Shaping(**asked)
    if examples and not is_made(model):
        raise InvalidCall(
            "--example is for a function that returns a model", given=model, do="name it FILE.py:FUNCTION"
        )
    if fuse_also and fuse is False:
        raise InvalidCall("--fuse-also looks for an op, which --no-fuse forbids", do="leave one of them out")
    original = transformed(load_made(model, examples, seed) if is_made(model) else load_model(model))
    feeds = read_feeds(original, inputs, archive) or None
    graph = shaping.dims(original)
    shapes = {**shaping.fixed, **input_shapes}
    lowered = shaping.precision(graph, feeds, shapes, seed)
    comparison = Comparison(
        original, shaping, feeds, shapes, seed, absolute, relative, lowered, required=wanted is True
    )
    config = ExportConfig(
        opset_version=opset_version,
        domains=domains,
        target=target,
        external_data_threshold=external_data_threshold,
        fuse=fuse_also or (has_more_ops(graph, opset_version, domains) if fuse is None else fuse),
        functions=functions,
        ir_version=ir_version,
        tidy=tidy,
        overwrite=overwrite,
        verify=None if wanted is False else comparison,
    )
    with working(f"converting {model}"):
        report = write_model(graph if lowered is None else lowered.graph, output, config)
    for note in comparison.notes:
        complain(note)
    note_unused(opset_version, report.opsets)
    if as_json:
        found = comparison.found.to_json() if comparison.found else None
        half = {} if lowered is None else {"half_precision": lowered.to_json()}
        say_json({"file": model, "output": output, **report.to_json(), **half, "verification": found})
    else:
        given = f"made-up inputs (seed {seed})" if feeds is None else "the inputs given"
        _say_report(output, report, comparison.found, given)
        if lowered is not None:
            _say_half(lowered)


def check_output(output: str, *inputs: str) -> None:
    """Raise ``InvalidCall`` for a file of no known format, and for one that is an input of the command."""
    from tenonnx.errors import InvalidCall

    path = Path(output)
    if not output.lower().endswith(SUFFIXES) and not path.is_dir():
        raise InvalidCall("a model is written to a file of a known format", given=output, available=", ".join(SUFFIXES))
    note_replaced(output, inputs)


def note_replaced(output: str, inputs: Iterable[str]) -> None:
    """Say that a file which is read will be written, too."""
    path = Path(output)
    if path.exists() and any(each and Path(each).exists() and path.samefile(each) for each in inputs):
        complain(f"note: {output} is an input of this command, and will be replaced")


def write_model(graph: Graph, output: str, config: ExportConfig) -> Report:
    """Write a graph in the format that its file is called by. Raises ``InvalidCall`` for another."""
    from tenonnx.formats import native
    from tenonnx.formats.export import export, is_native, prepare

    if not is_native(output):
        return export(graph, output, config)
    model, initializers, report = prepare(graph, config)
    native.write(model, initializers, output, overwrite=config.overwrite)
    return report


def _say_report(output: str, report: Report, verification: Verification | None, given: str) -> None:
    from tenonnx.cli.changes import say_changes

    opsets = ", ".join(f"{domain} {version}" for domain, version in report.opsets.items())
    kept = len(report.changes) - len(report.rewritten)
    say(f"{output}: opsets {opsets}, IR {report.ir_version}")
    say(f"{plural(kept, 'node')} kept, {plural(len(report.rewritten), 'node')} rewritten")
    say_changes(report.changes)
    if verification is not None and verification.largest is not None:
        backends = ", ".join(dict.fromkeys(each.backend for each in verification.outputs))
        say(f"verified on {backends}, against the original on {verification.reference}, with {given}")
        say(f"largest difference: {verification.largest}")


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
