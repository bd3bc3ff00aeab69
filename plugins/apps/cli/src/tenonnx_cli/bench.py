"""``tenonnx bench``: time of a call by backend, provider, threads and batch size."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

import click

from tenonnx_cli.command import Command
from tenonnx_cli.deadline import not_finished, running_timeout_option, within
from tenonnx_cli.options import (
    FILE,
    InputShapes,
    input_options,
    json_option,
    load_model,
    rules_option,
    seed_option,
    shapes_option,
)
from tenonnx_cli.output import (
    complain,
    human_bytes,
    human_seconds,
    interruptible,
    plural,
    say,
    say_json,
    say_table,
    working,
)
from tenonnx_cli.printable import printable

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tenonnx_cli.benchmark import Benchmark, Timing
    from tenonnx_cli.node_times import NodeTime

#: Maximum number of nodes listed for a backend.
MOST_NODES = 10


def _numbers(ctx: click.Context, option: click.Parameter, text: str | None) -> list[int]:
    """Parse ``1,8,32``."""
    parts = [] if text is None else [part.strip() for part in text.split(",")]
    if not all(part.isascii() and part.isdigit() and int(part) for part in parts):
        raise click.BadParameter(f"{text!r} is not a list of positive numbers such as 1,8,32", ctx, option)
    return [int(part) for part in parts]


@click.command(
    "bench",
    cls=Command,
    examples=[
        "tenonnx bench before.onnx after.onnx --backend onnxruntime --batch-size 1,8,32",
        "tenonnx bench model.onnx --nodes",
    ],
)
@click.argument("models", type=FILE, metavar="MODEL...", nargs=-1, required=True)
@rules_option
@input_options
@click.option("--backend", "only", multiple=True, metavar="NAME", help="Time only this backend. Repeatable.")
@click.option(
    "--provider",
    "providers",
    multiple=True,
    metavar="NAME",
    help="Time with this execution provider of onnxruntime, such as cuda. Repeatable.",
)
@click.option("--threads", callback=_numbers, metavar="N,...", help="Time with each of these numbers of threads.")
@click.option(
    "--batch-size",
    "batch_sizes",
    callback=_numbers,
    metavar="N,...",
    help="Time at each of these sizes of the first dim of the inputs.",
)
@click.option(
    "--seconds",
    type=click.FloatRange(min=0, min_open=True),
    default=1.0,
    show_default=True,
    help="Seconds to spend on each setting.",
)
@click.option(
    "--choose",
    "choice",
    type=click.Path(dir_okay=False, writable=True),
    metavar="FILE",
    help="Write the order of the backends, fastest first, for TENONNX_BACKEND_CHOICE=FILE.",
)
@click.option(
    "--nodes",
    "by_node",
    is_flag=True,
    help=f"List the {MOST_NODES} slowest nodes instead, on the backends that can measure that.",
)
@click.option(
    "--plot",
    "picture",
    type=click.Path(dir_okay=False, writable=True),
    metavar="FILE",
    help="Draw the times to a file, such as times.svg or times.png. Needs matplotlib.",
)
@shapes_option
@seed_option
@running_timeout_option
@json_option
def command(
    models: Sequence[str],
    inputs: Sequence[str],
    archive: str | None,
    only: Sequence[str],
    providers: Sequence[str],
    threads: Sequence[int],
    batch_sizes: Sequence[int],
    seconds: float,
    choice: str | None,
    by_node: bool,
    picture: str | None,
    input_shapes: InputShapes,
    seed: int,
    timeout: float,
    as_json: bool,
) -> None:
    """Time one or more models on all installed backends. Inputs that are not given get random values.

    Reports the median, the 90th and the 99th percentile of the calls, and the ratio to the fastest setting with the
    quartiles of ten rounds, in which the settings take turns. The first call, compilation and peak memory are listed
    apart. With --choose, writes a file that sets the order in which the backend "auto" tries backends, where the
    environment variable TENONNX_BACKEND_CHOICE names it.
    """
    from tenonnx_cli.arrays import read_feeds
    from tenonnx_cli.benchmark import bench

    with interruptible(), within(timeout, not_finished):
        graphs = [load_model(model) for model in models]
        feeds = read_feeds(graphs[0], inputs, archive)
    if by_node:
        _time_nodes(dict(zip(models, graphs, strict=True)), feeds, only, seed, input_shapes, timeout, as_json)
        return
    missing = [value.name for value in graphs[0].inputs if value.name not in feeds]
    if missing:
        names = printable(", ".join(missing))
        complain(f"random inputs from seed {seed}: {names} (--input name=file.npy sets the values)")
    with working(f"timing {', '.join(models)}"), interruptible(), within(timeout, not_finished):
        found = bench(
            *graphs,
            titles=models,
            backends=only or None,
            providers=providers,
            threads=threads,
            batch_sizes=batch_sizes,
            feeds=feeds,
            input_shapes=input_shapes,
            seed=seed,
            seconds=seconds,
        )
    if choice is not None:
        _write_choice(choice, found)
    if picture is not None:
        found.plot().figure.savefig(picture)
    if as_json:
        say_json({"file": models[0], **found.to_dict()})
        return
    _say(found)
    for timing in found.timings:
        if timing.problem:
            complain(f"{found.title(timing)}: {timing.problem}")
    say(_choice_line(choice))


def _write_choice(path: str, found: Benchmark) -> None:
    from tenonnx.tools import write_bytes

    seconds: dict[str, float] = {}
    for timing in sorted(found.measured, key=lambda timing: timing.seconds):
        seconds.setdefault(timing.backend, timing.seconds)
    write_bytes(path, [json.dumps({"backends": list(seconds), "seconds": seconds}, indent=2).encode(), b"\n"])


def _choice_line(written: str | None) -> str:
    """A line about the written file with the order of backends."""
    used = os.environ.get("TENONNX_BACKEND_CHOICE")
    if written is not None:
        return f"{written}: order of the backends, used where TENONNX_BACKEND_CHOICE={written} is set"
    if used:
        return f'the backend "auto" follows {used} (TENONNX_BACKEND_CHOICE)'
    return 'the backend "auto" goes by rank: nothing was kept (--choose FILE keeps this order)'


def _say(found: Benchmark) -> None:
    """Print the settings that ran as two tables: calls; and compilation, memory and differences."""
    timings = found.measured
    settings = [_setting(timing) for timing in timings]
    several = {"model": len({timing.model for timing in found.timings}) > 1}
    for part in (_calls, _apart):
        rows = [setting | part(timing) for setting, timing in zip(settings, timings, strict=True)]
        # omit columns that are empty or equal in all rows
        names = [name for name in (rows or [{}])[0] if several.get(name, any(row[name] for row in rows))]
        if rows:
            say_table([[row[name] for name in names] for row in rows], names)


def _setting(timing: Timing) -> dict[str, str]:
    return {
        "backend": timing.backend,
        "model": timing.model,
        "provider": timing.provider or "",
        "threads": str(timing.threads or ""),
        "batch": str(timing.batch_size or ""),
    }


def _calls(timing: Timing) -> dict[str, str]:
    ratio, quartiles = timing.ratio, ""
    if ratio is not None and ratio.low != ratio.high:
        quartiles = f" ({ratio.low:.3g}-{ratio.high:.3g})"
    return {
        "median": human_seconds(timing.seconds),
        "p90": human_seconds(timing.quantile(0.9)),
        "p99": human_seconds(timing.quantile(0.99)),
        "calls/s": f"{1 / max(timing.seconds, 1e-12):,.3g}" if timing.seconds > 1e-3 else f"{1 / timing.seconds:,.0f}",
        "ratio": "" if ratio is None else f"{ratio.median:.3g}{quartiles}",
    }


def _apart(timing: Timing) -> dict[str, str]:
    return {
        "first call": human_seconds(timing.first_call),
        "compiling": human_seconds(timing.compiling),
        "memory": "" if timing.memory is None else human_bytes(timing.memory)[0],
        "compiled": "" if timing.compilations is None else str(timing.compilations),
        "differs by": f"{timing.difference:.2g}",
    }


def _time_nodes(
    graphs: Mapping[str, Any],
    feeds: Mapping[str, Any],
    only: Sequence[str],
    seed: int,
    input_shapes: InputShapes,
    timeout: float,
    as_json: bool,
) -> None:
    """Print the slowest nodes of each model on each backend, and why some are not measured.

    Raises the first error if none is measured.
    """
    from tenonnx.tools import compile_graph
    from tenonnx_cli.node_times import measuring_nodes, node_times
    from tenonnx_cli.random_inputs import complete

    shown: list[dict[str, Any]] = []
    failures: list[Exception] = []
    for model, graph in graphs.items():
        for name in only or measuring_nodes():
            try:
                with working(f"timing {model}"), interruptible(), within(timeout, not_finished):
                    given, _ = complete(graph, compile_graph(graph, "numpy"), feeds, seed, input_shapes)
                    nodes = node_times(graph, given, name)
            except Exception as error:  # including those of the runtime
                failures.append(error)
                shown.append({"file": model, "backend": name, "problem": str(error)})
                continue
            shown.append({"file": model, "backend": name, "nodes": [each.to_dict() for each in nodes]})
            if not as_json:
                _say_nodes(f"{model}, {name}" if len(graphs) > 1 else name, nodes)
    if len(failures) == len(shown) and failures:
        raise failures[0]
    for each in shown if not as_json else ():
        if "problem" in each:
            complain(f"{each['file']}, {each['backend']}: {each['problem']}")
    if as_json:
        say_json({"file": next(iter(graphs)), "backends": shown})


def _say_nodes(title: str, nodes: Sequence[NodeTime]) -> None:
    total = sum(each.seconds for each in nodes) or 1.0
    say(f"{title}: {human_seconds(total)} in nodes")
    rows = [
        [each.name, each.op or "-", human_seconds(each.seconds), f"{each.seconds / total:.1%}"]
        for each in nodes[:MOST_NODES]
    ]
    say_table(rows, ["node", "op", "time", "share"])
    if len(nodes) > MOST_NODES:
        say(f"and {plural(len(nodes) - MOST_NODES, 'node')} more; --json lists all")
