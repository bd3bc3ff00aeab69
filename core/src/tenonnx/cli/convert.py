"""``tenonnx convert``: the same model at another opset, for other domains, or in another format."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tenonnx.cli.options import (
    InputShapes,
    TransformingCommand,
    input_options,
    json_option,
    load_model,
    model_argument,
    note_unused,
    seed_option,
    shapes_option,
    target_options,
    transformed,
)
from tenonnx.cli.output import complain, plural, say, say_json, working

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tenonnx.checks.verify import Verification
    from tenonnx.formats.export import ExportConfig, Report
    from tenonnx.graph.graph import Graph


#: What a model can be written as.
SUFFIXES = (".onnx", ".safetensors")


@click.command("convert", cls=TransformingCommand)
@model_argument
@click.option(
    "-o", "--output", required=True, metavar="FILE", help="A .onnx file, or .safetensors for our native format."
)
@target_options
@click.option(
    "--verify/--no-verify", "wanted", default=None,
    help="Compare the numbers of both models before anything is written. By default that is done where both can run.",
)  # fmt: skip
@input_options
@shapes_option
@seed_option
@click.option("--atol", type=click.FloatRange(min=0), help="Allowed absolute difference, in place of the table's.")
@click.option("--rtol", type=click.FloatRange(min=0), help="Allowed relative difference, in place of the table's.")
@click.option(
    "--external-data-threshold", type=click.IntRange(min=0), metavar="BYTES",
    help="Put tensors of at least so many bytes in a data file beside the model.",
)  # fmt: skip
@click.option("--overwrite", is_flag=True, help="Replace the output file even if it is read-only.")
@click.option(
    "--fuse", is_flag=True,
    help="Put one node where the body of an op stands that the target has, such as LayerNormalization or Gelu.",
)  # fmt: skip
@click.option("--tidy", is_flag=True, help="Also sort nodes, declare every domain and write every type.")
@json_option
def command(
    model: str,
    output: str,
    opset_version: Mapping[str, int] | None,
    domains: Sequence[str] | None,
    target: str | None,
    wanted: bool | None,
    inputs: Sequence[str],
    archive: str | None,
    input_shapes: InputShapes,
    seed: int,
    atol: float | None,
    rtol: float | None,
    external_data_threshold: int | None,
    overwrite: bool,
    fuse: bool,
    tidy: bool,
    as_json: bool,
) -> None:
    """Write a model for another opset, domains or format.

    Prints what became of each node that could not stay as it was. Nothing is written when a node has no form in the
    target, or when the result does not give the numbers of the original.
    """
    from tenonnx.cli.arrays import read_feeds
    from tenonnx.errors import InvalidCall
    from tenonnx.formats.export import ExportConfig

    if not output.lower().endswith(SUFFIXES) and not Path(output).is_dir():
        raise InvalidCall("a model is written to a file of a known format", given=output, available=", ".join(SUFFIXES))
    graph = transformed(load_model(model))
    feeds = read_feeds(graph, inputs, archive) or None
    options = {"feeds": feeds, "input_shapes": input_shapes, "seed": seed, "absolute": atol, "relative": rtol}
    verified: list[Verification] = []
    notes: list[str] = []

    def verify(written: Graph) -> None:
        found = _verified(graph, written, options, notes, required=wanted is True)
        verified.extend([found] if found is not None else [])

    config = ExportConfig(
        opset_version=opset_version,
        domains=domains,
        target=target,
        external_data_threshold=external_data_threshold,
        fuse=fuse,
        tidy=tidy,
        overwrite=overwrite,
        verify=None if wanted is False else verify,
    )
    with working(f"converting {model}"):
        report = _write(graph, output, config)
    for note in notes:
        complain(note)
    note_unused(opset_version, report.opsets)
    if as_json:
        found = verified[0].to_json() if verified else None
        say_json({"file": model, "output": output, **report.to_json(), "verification": found})
    else:
        given = f"made-up inputs (seed {seed})" if feeds is None else "the inputs given"
        _say_report(output, report, verified, given)


def _write(graph: Graph, output: str, config: ExportConfig) -> Report:
    from tenonnx.formats import native
    from tenonnx.formats.export import export, is_native, prepare

    if not is_native(output):
        return export(graph, output, config)
    model, initializers, report = prepare(graph, config)
    native.write(model, initializers, output, overwrite=config.overwrite)
    return report


def _verified(
    graph: Graph, written: Graph, options: Mapping[str, Any], notes: list[str], *, required: bool
) -> Verification | None:
    """The verification, which has to succeed; None where a graph cannot run, unless it is ``required``."""
    from tenonnx.checks.verify import verify
    from tenonnx.errors import InvalidFeed, UnsupportedOp

    try:
        found = verify(graph, written, **options).raise_if_failed()
    except (UnsupportedOp, InvalidFeed) as error:
        if required or options["feeds"] is not None:
            raise
        notes.append(f"not verified: {error}")
        return None
    notes += [f"note: {note}" for note in found.notes]
    return found


def _say_report(output: str, report: Report, verified: Sequence[Verification], given: str) -> None:
    from tenonnx.cli.changes import say_changes

    opsets = ", ".join(f"{domain} {version}" for domain, version in report.opsets.items())
    kept = len(report.changes) - len(report.rewritten)
    say(f"{output}: opsets {opsets}, IR {report.ir_version}")
    say(f"{plural(kept, 'node')} kept, {plural(len(report.rewritten), 'node')} rewritten")
    say_changes(report.changes)
    for verification in verified:
        backends = ", ".join(dict.fromkeys(each.backend for each in verification.outputs))
        if verification.largest is not None:
            say(f"verified on {backends}, against the original on {verification.reference}, with {given}")
            say(f"largest difference: {verification.largest}")
