"""``tenonnx bench``: how long a call takes on every installed backend."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import click

from tenonnx_cli.deadline import not_finished, running_timeout_option, within
from tenonnx_cli.options import (
    InputShapes,
    input_options,
    json_option,
    load_model,
    model_argument,
    seed_option,
    shapes_option,
)
from tenonnx_cli.output import complain, interruptible, plural, say, say_json, say_table, working

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tenonnx import Graph
    from tenonnx_cli.node_times import NodeTime

#: Calls that are measured at most.
MOST_CALLS = 10_000

#: Nodes that are listed for a backend.
MOST_NODES = 20


@click.command("bench")
@model_argument
@input_options
@click.option("--backend", "only", multiple=True, metavar="NAME", help="Time only this backend. Repeatable.")
@click.option(
    "--seconds", type=click.FloatRange(min=0, min_open=True), default=1.0, show_default=True,
    help="Seconds to spend on each backend.",
)  # fmt: skip
@click.option("--nodes", "by_node", is_flag=True, help="Time each node, on the backends that can measure that.")
@shapes_option
@seed_option
@running_timeout_option
@json_option
def command(
    model: str,
    inputs: Sequence[str],
    archive: str | None,
    only: Sequence[str],
    seconds: float,
    by_node: bool,
    input_shapes: InputShapes,
    seed: int,
    timeout: float,
    as_json: bool,
) -> None:
    """Time a model on all installed backends. Inputs that are not given get random values.

    Reports the time of the first call, the median of the calls after it, the largest difference from numpy, and, for a
    backend that compiles for each shape of the inputs, the number of compilations. The result is stored: from now on,
    the backend "auto" picks the fastest one for this model. With --nodes, lists the slowest nodes instead; a fused
    kernel has the name that the runtime gives it.
    """
    from tenonnx import InvalidCall
    from tenonnx.tools import backends, compile_graph, remember
    from tenonnx_cli.arrays import read_feeds
    from tenonnx_cli.node_times import measuring_nodes, node_times
    from tenonnx_cli.random_inputs import complete

    graph = load_model(model)
    given = read_feeds(graph, inputs, archive)
    installed = backends()
    known = ["numpy", *installed]
    if unknown := [name for name in only if name not in known]:
        raise InvalidCall(f'no backend "{unknown[0]}" is installed', available=", ".join(known))
    if by_node:
        with working(f"timing {model}"), interruptible(), within(timeout, not_finished):
            feeds, _ = complete(graph, compile_graph(graph, "numpy"), given, seed, input_shapes)
            times = {name: node_times(graph, feeds, name) for name in only or measuring_nodes()}
        _say_nodes(model, times, as_json)
        return
    with working(f"timing {model}"), interruptible(), within(timeout, not_finished):
        feeds, expected = complete(graph, compile_graph(graph, "numpy"), given, seed, input_shapes)
        rows = [_timed(graph, name, feeds, expected, seconds) for name in only or known]
    found = {row["backend"]: row["seconds"] for row in rows if "seconds" in row}
    if not only and (faster := {name: each for name, each in found.items() if name != "numpy"}):
        remember(faster, graph, {name: plugin.source for name, plugin in installed.items()})
    if as_json:
        say_json({"file": model, "backends": rows})
        return
    best = min(found.values(), default=1.0)
    headers = ["backend", "ms", "times the best", "first call, ms", "compiling, ms", "differs by", "compiled"]
    say_table([_shown(row, best) for row in rows if "seconds" in row], headers)
    for row in rows:
        if "problem" in row:
            complain(f"{row['backend']}: {row['problem']}")


def _say_nodes(model: str, times: Mapping[str, Sequence[NodeTime]], as_json: bool) -> None:
    """Print the nodes that take longest on each backend, or all of them as JSON."""
    if as_json:
        found = [{"backend": name, "nodes": [each.to_json() for each in nodes]} for name, nodes in times.items()]
        say_json({"file": model, "backends": found})
        return
    for name, nodes in times.items():
        total = sum(each.seconds for each in nodes) or 1.0
        say(f"{name}: {total * 1e3:.3g} ms in nodes")
        rows = [
            [each.name, each.op or "-", f"{each.seconds * 1e3:.3g}", f"{each.seconds / total:.1%}"]
            for each in nodes[:MOST_NODES]
        ]
        say_table(rows, ["node", "op", "ms", "share"])
        if len(nodes) > MOST_NODES:
            say(f"and {plural(len(nodes) - MOST_NODES, 'node')} more; --json lists all")


def _timed(
    graph: Graph, name: str, feeds: Mapping[str, Any], expected: Mapping[str, Any], seconds: float
) -> dict[str, Any]:
    """What a backend takes, in seconds, or why it does not run the graph."""
    from tenonnx import OutOfTime, TenonnxError
    from tenonnx.tools import backends, compare, compile_graph, differing, is_comparable, measured, sizes_of, undeclared

    before = _compilations(name)
    try:
        start = time.perf_counter()
        program = compile_graph(graph, name, strict=True)
        made = time.perf_counter()
        results = program(feeds)
        first = time.perf_counter() - made
        typical = measured(program, feeds, seconds, MOST_CALLS)
        sizes = sizes_of(graph.all_inputs, feeds)
        problem = undeclared(results, graph.outputs, sizes) or (is_comparable(graph) and differing(results, expected))
        difference = 0.0 if problem else max((compare(results[o], expected[o]).absolute for o in expected), default=0.0)
    except OutOfTime:
        raise
    except TenonnxError as error:
        return {"backend": name, "problem": str(error)}
    except (Exception, SystemExit) as error:
        if name == "numpy":
            raise
        return {"backend": name, "problem": str(backends()[name].failure("cannot run a graph", error))}
    if problem:
        return {"backend": name, "problem": f"wrong outputs, so that auto does not use it: {problem}"}
    spent = {"seconds": typical, "first_call": first, "compiling": made - start}
    after = _compilations(name)
    compiled = None if before is None or after is None else after - before
    return {"backend": name, **spent, "difference": difference, "compilations": compiled}


def _compilations(name: str) -> int | None:
    """How often a backend has compiled for sizes of inputs so far; None for those that do not."""
    from tenonnx.tools import backends

    count = None if name == "numpy" else getattr(backends()[name].load(), "compilations", None)
    return None if count is None else int(count())


def _shown(row: Mapping[str, Any], best: float) -> list[str]:
    times = [row["seconds"] * 1e3, row["seconds"] / best, row["first_call"] * 1e3, row["compiling"] * 1e3]
    counted = "" if row["compilations"] is None else str(row["compilations"])
    return [row["backend"], *(f"{number:.3g}" for number in times), f"{row['difference']:.2g}", counted]
