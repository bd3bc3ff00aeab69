"""``tenonnx quantize``: a floating-point model with quantized weights and activations."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import click

from tenonnx import VerificationFailed
from tenonnx_cli.extend import (
    Command,
    columns_option,
    complain,
    config_options,
    costs_option,
    input_options,
    json_option,
    load_model,
    model_argument,
    model_size,
    opened,
    output_option,
    say,
    say_json,
    say_sizes,
    say_table,
    verbosity_options,
    working,
)
from tenonnx_quantized.tuning.modes import (
    CACHE_TYPES,
    GRANULARITIES,
    MODES,
    PREPARATIONS,
    RANGES,
    ROUNDINGS,
    SCALE_TYPES,
    SEARCHES,
)

if TYPE_CHECKING:
    from tenonnx.extend import Graph
    from tenonnx_quantized.tuning.accuracy import Report

#: An output with a lower signal-to-quantization-noise ratio, in decibels, counts as lost.
LEAST_SQNR = 10.0

#: Number of tensors whose errors are printed; --json has all.
SHOWN = 10


@click.command(
    "quantize",
    cls=Command,
    examples=[
        "tenonnx quantize model.onnx -o small.onnx",
        "tenonnx quantize model.onnx -o small.onnx --recipe gptq-4bit --inputs samples.npz",
    ],
)
@model_argument
@output_option
@click.option(
    "--recipe",
    metavar="NAME|FILE",
    help="Settings by the name of a recipe, or from a TOML file; other options override them. "
    "An unknown name lists the recipes.",
)
@click.option(
    "--mode",
    type=click.Choice(MODES),
    default=MODES[0],
    show_default=True,
    help="dynamic: ranges of activations are computed at run time; static: they are calibrated on --inputs; "
    "weights: only weights are quantized, those of MatMul in blocks, those of Conv and Gemm by channel in 8 bits.",
)
@click.option(
    "--bits",
    type=click.Choice(["2", "4", "8"]),
    help="Bits of a weight in blocks, of Gemm too. Default: 4 in mode weights, else 8.",
)
@click.option(
    "--activation-type",
    type=click.Choice(["uint8", "int8", "uint16", "int16", "float8e4m3fn", "float8e5m2"]),
    help="Type of quantized activations in mode static. Default: uint8, or int8 with --symmetric.",
)
@click.option(
    "--weight-type",
    type=click.Choice(
        "int8 uint8 int16 uint16 int4 uint4 int2 uint2 float8e4m3fn float8e5m2 float4e2m1".split()  # noqa: SIM905
    ),
    help="Type of quantized weights; in mode weights a float8 or float4e2m1. Default: int8.",
)
@click.option(
    "--scale-type",
    type=click.Choice(SCALE_TYPES),
    help="Type of the scales of blocks of floats: powers of two (MX formats), or float8 times one number (NVFP4). "
    "Default: float32.",
)
@click.option(
    "--kv-cache",
    type=click.Choice(CACHE_TYPES),
    help="Type of the key and value caches of a decoder, which are graph inputs and outputs. Needs --inputs.",
)
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
@click.option(
    "--granularity",
    type=click.Choice(GRANULARITIES),
    help="The part of every weight that shares a scale. Default: blocks of MatMul in mode weights, else channels.",
)
@click.option("--symmetric", is_flag=True, help="Symmetric quantization: zero point in the middle of the range.")
@click.option(
    "--reduce-range",
    is_flag=True,
    help="Weights of 7 bits, for kernels that add products in 16 bits: x86 without VNNI.",
)
@click.option(
    "--calibration",
    type=click.Choice(RANGES),
    default="minmax",
    show_default=True,
    help="How the ranges of activations are calibrated.",
)
@click.option(
    "--method",
    metavar="A,B",
    default="rtn",
    show_default=True,
    help=f"How weights are rounded: {', '.join(ROUNDINGS)}; what is done before: {', '.join(PREPARATIONS)}; and "
    "bias-correction. All but rtn, hqq, rotate and equalize need --inputs.",
)
@click.option(
    "--search",
    type=click.Choice(SEARCHES),
    help="How the scales of weights are found: by their extremes (rtn), half-quadratic quantization (hqq) or the least "
    "square error (mse). Default: rtn, or mse for methods that read data.",
)
@click.option("--ops", metavar="A,B", help="The op types to quantize; by default all that can be.")
@click.option(
    "--leave-out", multiple=True, metavar="PATTERN", help="Names of nodes that stay in floating point. Repeatable."
)
@click.option(
    "--budget",
    metavar="ERROR|SIZE|TIME",
    help="An error such as 0.05: the nodes with the largest errors stay in floating point until that of the outputs is "
    "below it. A size such as 4.5bits (of a weight) or 20MiB (of all): each layer gets 2, 4 or 8 bits. A time such as "
    "3ms of all layers: each gets 2, 4 or 8 bits or stays in floating point.",
)
@click.option(
    "--op-times",
    type=click.Path(dir_okay=False),
    metavar="FILE",
    help="A JSON table of the times of layers for such a budget; what it lacks is measured and added.",
)
@click.option("--report", is_flag=True, help="Measure and print the error that each layer alone causes.")
@click.option(
    "--evaluate",
    metavar="COMMAND",
    help="A command that prints a metric of a model, whose path replaces {model} or is appended; the last number "
    "counts. It is run for the float and the quantized model and, with --report, for each layer quantized alone.",
)
@click.option(
    "--plot",
    "picture",
    type=click.Path(dir_okay=False, writable=True),
    metavar="FILE",
    help="Draw the errors of layers and the curve of size and error to a file. Needs matplotlib. Implies --report.",
)
@click.option(
    "--checkpoint",
    type=click.Path(file_okay=False),
    metavar="PATH",
    help="Quantize weights layer by layer, by a method that reads data, for models that are larger than memory. Layers "
    "are written to a folder, from which a killed run goes on when it is repeated; at the end they are removed.",
)
@click.option(
    "--form",
    type=click.Choice(["qdq", "qoperator"]),
    default="qdq",
    show_default=True,
    help="Quantization format of the result: QDQ nodes or QLinear operators.",
)
@click.option(
    "--allow-loss",
    is_flag=True,
    help=f"Write the model although the signal-to-quantization-noise ratio of an output is below {LEAST_SQNR:g} dB.",
)
@click.option(
    "--initializers-as-constants/--no-initializers-as-constants",
    default=True,
    show_default=True,
    help="Make initializers that are listed as graph inputs constant, so that they are quantized.",
)
@click.option(
    "--batch-size",
    "batch",
    type=click.IntRange(min=1),
    default=32,
    show_default=True,
    help="Batch size for calibration.",
)
@config_options("overwrite")
@input_options
@columns_option
@costs_option
@verbosity_options
@json_option
def command(
    model: str,
    output: str,
    inputs: Sequence[str],
    archive: str | None,
    columns: Mapping[str, Sequence[str]],
    ops: str | None,
    recipe: str | None,
    bits: str | None,
    report: bool,
    evaluate: str | None,
    picture: str | None,
    checkpoint: str | None,
    leave_out: Sequence[str],
    batch: int,
    overwrite: bool,
    costs: bool,
    verbose: bool,
    as_json: bool,
    allow_loss: bool,
    **settings: Any,
) -> None:
    """Quantize the weights, or weights and activations, of a model to 8 or 4 bits.

    Prints the verdict with the signal-to-quantization-noise ratio (SQNR) of the outputs, what changed, and the tensors
    with the largest relative errors; -v lists all of them. The written model is read back and compared, on numpy and
    onnxruntime, with the quantized graph on numpy, before it replaces an existing file.
    """
    import tenonnx as tx
    from tenonnx_cli.extend import read_feeds
    from tenonnx_data import cut
    from tenonnx_quantized.tuning.checkpoint import remove_checkpoint
    from tenonnx_quantized.tuning.kv_cache import with_quantized_feeds
    from tenonnx_quantized.tuning.metric import metric_of_command
    from tenonnx_quantized.tuning.quantize import is_measured, quantize
    from tenonnx_quantized.tuning.recipe import config_of

    settings |= {"bits": None if bits is None else int(bits), "leave_out": leave_out}
    settings["ops"] = None if ops is None else [name.strip() for name in ops.split(",")]
    settings = _given(settings)
    chosen = config_of(recipe, settings)
    graph = load_model(model)
    before = model_size(graph, model, costs=costs)  # the output may replace the file
    batches = list(cut(graph, read_feeds(graph, inputs, archive, columns), batch))
    is_run = is_measured(graph, batches, chosen.budget)
    if not is_run:
        complain("note: a model of this size, or with an op that no package provides, is not run to measure errors")
    elif not batches and not chosen.calibrates:
        complain("note: errors are measured on random inputs (give data with --inputs)")
    if chosen.initializers_as_constants:
        _say_closed(sum(value.data is not None for value in graph.all_inputs))
    with ExitStack() as shown:
        if checkpoint is None:
            shown.enter_context(working(f"quantizing {model}"))
        else:
            settings |= {"checkpoint": checkpoint, "progress": _bar(shown, model)}
        metric = None if evaluate is None else metric_of_command(evaluate)
        layers = report or picture is not None
        quantized, found = quantize(graph, batches, recipe=recipe, report=layers, metric=metric, **settings)
    is_run = is_run and bool(found.outputs)
    for note in found.notes:
        complain(f"note: {note}")
    if not allow_loss:
        _refuse_loss(found)

    def verify(written: Graph) -> None:
        if not is_run:
            return
        feeds = with_quantized_feeds(quantized, batches[0]) if batches else None
        used = tx.verify(quantized, written, feeds=feeds).raise_if_failed().default_session
        between = tx.verify(written, feeds=feeds)
        for each in (each for each in between.outputs if not each.equal):
            complain(f'note: output "{each.name}" differs on {each.backend}: {each.difference.reason}')
        for session in (session for session in used if not session.equal):
            helps = f"; {session.helps} helps" if session.helps else ""
            complain(f"note: a session of {session.backend} with default options differs: {session.reason}{helps}")

    tx.export(quantized, opened(output), verify=verify, overwrite=overwrite)
    if checkpoint is not None:
        remove_checkpoint(checkpoint)
    verdict = _verdict(found, is_run)
    after = model_size(quantized, output, costs=costs)
    if picture is not None:
        found.plot().figure.savefig(picture)
    if as_json:
        both = {"before": before.to_dict(), "after": after.to_dict()}
        say_json({"file": model, "output": output, "verdict": verdict, **both, **found.to_dict()})
        return
    say(f"{output}: {verdict}", style="green" if is_run else "yellow")
    say_sizes(before, after)
    say()
    _say(found, verbose)


def _bar(shown: ExitStack, model: str) -> Callable[[int, int, str], None]:
    """A progress bar of the layers, on a terminal's stderr."""
    bars: list[Any] = []

    def progress(done: int, count: int, name: str) -> None:
        if not bars:
            bars.append(shown.enter_context(click.progressbar(length=count, label=model, file=sys.stderr)))
        bars[0].update(done - bars[0].pos)

    return progress if sys.stderr.isatty() else lambda done, count, name: None


def _given(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings whose options are given; a recipe keeps the others."""
    default = click.core.ParameterSource.DEFAULT
    context = click.get_current_context()
    return {name: value for name, value in settings.items() if context.get_parameter_source(name) is not default}


def _say_closed(count: int) -> None:
    """Print a note about graph inputs with default values, which become constants."""
    if count:
        are = "input with a default value is constant" if count == 1 else "inputs with a default value are constants"
        complain(f"note: {count} graph {are} now (--no-initializers-as-constants keeps defaults)")


def _verdict(report: Report, is_run: bool) -> str:
    """Summary of the quantization and the change of the outputs, in one line."""
    return str(report) if is_run else f"{report}, not verified"


def _refuse_loss(report: Report) -> None:
    lost = {name: ratio for name, ratio in report.sqnr.items() if not ratio >= LEAST_SQNR}
    if lost:
        given = ", ".join(f'{ratio:.1f} dB of "{name}"' for name, ratio in lost.items())
        raise VerificationFailed(
            f"the signal-to-quantization-noise ratio of an output is below {LEAST_SQNR:g} dB",
            given=given,
            do="leave the worst nodes in floating point (--budget 0.1), or write the model nevertheless (--allow-loss)",
        )


def _say(report: Report, verbose: bool) -> None:
    shown = None if verbose else SHOWN
    say(f"{report.reached:.1%} of all weight elements are quantized")
    if report.unquantized:
        named = [f"{name} of {types}" for name, types in list(report.unquantized.items())[:shown]]
        more = len(report.unquantized) - len(named)
        say(f"float weights: {', '.join(named)}{f' and {more} more' if more else ''}")
    if report.floats:
        named = list(report.floats)[:shown]
        more = len(report.floats) - len(named)
        say(f"nodes left in floating point: {', '.join(named)}{f' and {more} more' if more else ''}")
    worst = sorted(report.tensors, key=lambda tensor: -tensor.error)[:shown]
    if worst:
        say_table([[t.name, t.kind, t.dtype, f"{t.error:.3%}"] for t in worst], ["tensor", "kind", "type", "error"])
    if more := len(report.tensors) - len(worst):
        say(f"  and {more} more, with smaller errors (-v lists all)")
    _say_layers(report)
    rows = [(n, f"{e:.3%}", f"{report.sqnr[n]:.1f} dB" if n in report.sqnr else "-") for n, e in report.outputs.items()]
    if rows:
        say()
        say_table(rows, ("output", "error", "SQNR"))
    if report.metrics:
        say()
        say_table([(name, f"{metric:.6g}") for name, metric in report.metrics.items()], ("model", "metric"))


def _say_layers(report: Report) -> None:
    """Print the sensitivity of each layer, and the size-error curve."""
    from tenonnx_quantized.tuning.pareto import sqnr

    if not report.layers:
        return
    widths = sorted({bits for layer in report.layers for bits in layer.errors} - {32})
    names = [f"SQNR at {bits} bits" for bits in widths]
    measured = [bits for bits in widths if any(bits in layer.metrics for layer in report.layers)]
    names += [f"metric at {bits} bits" for bits in measured]
    timed = sorted({bits for layer in report.layers for bits in layer.times})
    names += [f"ms at {bits} bits" for bits in timed]
    rows = []
    for layer in sorted(report.layers, key=lambda each: -max(each.errors.values())):
        ratios = {bits: f"{sqnr(error):.1f} dB" for bits, error in layer.errors.items()}
        numbers = [ratios.get(bits, "-") for bits in widths]
        numbers += [f"{layer.metrics[bits]:.6g}" if bits in layer.metrics else "-" for bits in measured]
        numbers += [f"{layer.times[bits] * 1000:.3g}" if bits in layer.times else "-" for bits in timed]
        rows.append([layer.name, layer.op, f"{layer.elements:,}", str(layer.bits), *numbers])
    say()
    say_table(rows, ["layer", "op", "weights", "bits", *names])
    say()
    points = [[f"{point.bits:.2f}", f"{point.sqnr:.1f} dB", *_seconds(point.seconds)] for point in report.pareto]
    say_table(points, ["bits of a weight", "estimated SQNR", *(["time of layers"] if timed else [])])


def _seconds(seconds: float | None) -> list[str]:
    return [] if seconds is None else [f"{seconds * 1000:.3g} ms"]
