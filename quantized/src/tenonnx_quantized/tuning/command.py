"""``tenonnx quantize``: a model of floats as one of codes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tenonnx_cli.extend import (
    complain,
    input_options,
    json_option,
    load_model,
    model_argument,
    opened,
    output_option,
    plural,
    say,
    say_json,
    say_table,
    working,
)

if TYPE_CHECKING:
    from tenonnx.extend import Graph
    from tenonnx_quantized.tuning.quantize import Report

#: Of so many tensors the errors are printed; --json has all.
SHOWN = 10


@click.command("quantize")
@model_argument
@output_option
@click.option(
    "--mode", type=click.Choice(["dynamic", "static", "weights"]), default="dynamic", show_default=True,
    help="dynamic: ranges of activations are computed at run time; static: they are calibrated on --inputs; "
    "weights: only weights are quantized, those of MatMul in blocks, those of Conv and Gemm by channel in 8 bits.",
)  # fmt: skip
@click.option(
    "--bits", type=click.Choice(["4", "8"]), help="Bits of a weight in blocks, of Gemm too. Default: 4 in mode "
    "weights, else 8.",
)  # fmt: skip
@click.option(
    "--activation-type", type=click.Choice(["uint8", "int8", "uint16", "int16", "float8e4m3fn"]),
    help="Type of quantized activations in mode static. Default: uint8, or int8 with --symmetric.",
)  # fmt: skip
@click.option(
    "--weight-type", type=click.Choice(["int8", "uint8", "int16", "uint16", "int4", "uint4", "float8e4m3fn"]),
    help="Type of quantized weights in modes static and dynamic. Default: int8.",
)  # fmt: skip
@click.option(
    "--block-size",
    type=int,
    default=32,
    show_default=True,
    help="Number of rows of a weight matrix that share a scale.",
)
@click.option(
    "--per-channel/--per-tensor",
    default=True,
    help="One scale for each output channel of a weight, or one for the whole tensor.",
)
@click.option("--symmetric", is_flag=True, help="Symmetric quantization: zero point in the middle of the range.")
@click.option(
    "--calibration", type=click.Choice(["minmax", "percentile", "entropy", "mse"]), default="minmax",
    show_default=True, help="How the ranges of activations are calibrated.",
)  # fmt: skip
@click.option(
    "--search", type=click.Choice(["rtn", "hqq"]), default="rtn", show_default=True,
    help="How block-quantized weights are rounded: to nearest (rtn), or by half-quadratic quantization (hqq).",
)  # fmt: skip
@click.option("--ops", metavar="A,B", help="The op types to quantize; by default all that can be.")
@click.option(
    "--leave-out", multiple=True, metavar="PATTERN", help="Names of nodes that stay in floating point. Repeatable."
)
@click.option(
    "--budget",
    type=float,
    metavar="ERROR",
    help="Keep the nodes with the largest errors in floating point until the error of the outputs is below this.",
)
@click.option(
    "--form",
    type=click.Choice(["qdq", "qoperator"]),
    default="qdq",
    show_default=True,
    help="Quantization format of the result: QDQ nodes or QLinear operators.",
)
@click.option("--batch", type=click.IntRange(min=1), default=32, show_default=True, help="Batch size for calibration.")
@input_options
@json_option
def command(
    model: str,
    output: str,
    inputs: Sequence[str],
    archive: str | None,
    ops: str | None,
    bits: str | None,
    leave_out: Sequence[str],
    batch: int,
    as_json: bool,
    **settings: Any,
) -> None:
    """Quantize the weights, or weights and activations, of a model to 8 or 4 bits.

    Prints the relative error of each quantized tensor and of the outputs. The written model is read back and run
    before it replaces an existing file.
    """
    import tenonnx as tx
    from tenonnx_cli.extend import read_feeds
    from tenonnx_quantized.tuning.quantize import is_measured, quantize

    graph = load_model(model)
    batches = list(_batches(graph, read_feeds(graph, inputs, archive), batch))
    is_run = is_measured(graph, batches, settings["budget"])
    if not is_run:
        complain("note: a model of this size is not run to measure the errors of its outputs (give data with --inputs)")
    elif not batches and settings["mode"] != "static":
        complain("note: errors are measured on random inputs (give data with --inputs)")
    settings |= {"bits": None if bits is None else int(bits), "leave_out": leave_out}
    settings["ops"] = None if ops is None else [name.strip() for name in ops.split(",")]
    with working(f"quantizing {model}"):
        made, report = quantize(graph, batches, **settings)

    def verify(written: Graph) -> None:
        if not is_run:
            return
        feeds = batches[0] if batches else None
        tx.verify(made, written, feeds=feeds, backends=["numpy"]).raise_if_failed()

    tx.export(made, opened(output), verify=verify)
    sizes = [Path(path).stat().st_size for path in (model, output) if path != "-"]
    if as_json:
        say_json({"file": model, "output": output, "bytes": sizes, **report.to_json()})
    else:
        _say(output, report, sizes)


def _batches(graph: Graph, feeds: Mapping[str, Any], size: int) -> Iterator[dict[str, Any]]:
    """The data in parts of so many rows, where the first dim of every input is free; else whole."""
    if not feeds:
        return
    shapes = [value.tensor.shape for value in graph.inputs if value.name in feeds]
    free = all(shape and not isinstance(shape[0], int) for shape in shapes)
    rows = {contents.shape[0] for contents in feeds.values() if getattr(contents, "ndim", 0)}
    if not free or len(rows) != 1:
        yield dict(feeds)
        return
    for start in range(0, rows.pop(), size):
        yield {name: contents[start : start + size] for name, contents in feeds.items()}


def _say(output: str, report: Report, sizes: Sequence[int]) -> None:
    smaller = f", {sizes[1]:,} bytes instead of {sizes[0]:,}" if len(sizes) == 2 else ""
    say(f"{output}: {plural(len(report.quantised), 'node')} quantized{smaller}")
    say(f"  {report.reached:.1%} of all weight elements are quantized")
    if report.kept:
        shown = [f"{name} of {types}" for name, types in list(report.kept.items())[:SHOWN]]
        more = f", and {len(report.kept) - SHOWN} more" if len(report.kept) > SHOWN else ""
        say(f"  float weights: {', '.join(shown)}{more}")
    if report.floats:
        say(f"  nodes left in floating point: {', '.join(report.floats)}")
    worst = sorted(report.tensors, key=lambda tensor: -tensor.error)[:SHOWN]
    say_table([[t.name, t.kind, t.dtype, f"{t.error:.3%}"] for t in worst], ["tensor", "kind", "type", "error"])
    if len(report.tensors) > SHOWN:
        say(f"  and {len(report.tensors) - SHOWN} more, with smaller errors")
    for name, error in report.outputs.items():
        say(f'  output "{name}" differs by {error:.3%}')
