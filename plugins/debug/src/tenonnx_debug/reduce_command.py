"""``tenonnx reduce``: the smallest model that still fails."""

from __future__ import annotations

import contextlib
import json
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tenonnx import InvalidCall
from tenonnx_cli.extend import (
    Command,
    complain,
    json_option,
    model_argument,
    output_option,
    quiet_option,
    say,
    say_json,
    working,
)

if TYPE_CHECKING:
    import onnx

    from tenonnx_debug.failures import Check


@click.command(
    "reduce",
    cls=Command,
    examples=[
        "tenonnx reduce model.onnx -o small.onnx",
        "tenonnx reduce model.onnx -o part.onnx --json",
    ],
)
@model_argument
@output_option
@click.option(
    "--check",
    "command_line",
    metavar="COMMAND",
    help="A command that fails (exit status other than 0) for the model, whose path replaces {model} or is appended.",
)
@click.option(
    "--check-output",
    "pattern",
    metavar="REGEX",
    help="With --check: the model fails where the output of the command matches this, whatever its exit status.",
)
@click.option(
    "--fails-in",
    "backend",
    metavar="BACKEND",
    help="The model fails in a backend, such as onnxruntime: an error, NaN or infinity, a crash, or no end. The path "
    "of a Python interpreter stands for the runtime of its environment.",
)
@click.option(
    "--differs",
    "pair",
    nargs=2,
    metavar="BACKEND BACKEND",
    help="Two backends compute different outputs on random inputs; or two versions of a runtime do, each given by the "
    "path of the Python interpreter of its environment.",
)
@click.option(
    "--tolerance",
    type=click.FloatRange(min=0),
    metavar="NUMBER",
    help="With --differs: the absolute and relative difference that is none. Default: as in verify.",
)
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Seed of random inputs.")
@click.option(
    "--timeout",
    type=click.FloatRange(min=0, min_open=True),
    default=60.0,
    show_default=True,
    metavar="SECONDS",
    help="Time limit of one check; a model that takes longer hangs.",
)
@quiet_option
@json_option
def command(
    model: str,
    output: str,
    command_line: str | None,
    pattern: str | None,
    backend: str | None,
    pair: tuple[str, str] | None,
    tolerance: float | None,
    seed: int,
    timeout: float,
    as_json: bool,
) -> None:
    """Find a small part of a model that fails as the whole model does.

    What fails is told by one of --check, --fails-in and --differs. Each candidate is checked in a child process. The
    smallest model so far is written to the output at once, and results are kept beside it in OUTPUT.progress, so that
    an interrupted search continues where it was.
    """
    from tenonnx_debug.files import read_message, write_message
    from tenonnx_debug.reduce import Reducer, sizes

    check = _check(command_line, pattern, backend, pair, tolerance, seed, timeout)
    message = read_message(model)
    before = sizes(message)
    notes = Path(f"{output}.progress")
    known = _progress(notes, [command_line, pattern, backend, pair, tolerance, seed])
    results: dict[str, bool] = known["results"]

    def keep(smaller: onnx.ModelProto) -> None:
        write_message(smaller, output)
        notes.write_text(json.dumps(known), "utf-8")
        if sys.stderr.isatty():
            complain(f"{sizes(smaller)[0]:,} of {before[0]:,} nodes")

    with contextlib.closing(check), working(f"reducing {model}"):
        reducer = Reducer(message, check, keep, results, seed)
        smallest = reducer.run()
    write_message(smallest, output)
    notes.unlink(missing_ok=True)
    after = sizes(smallest)
    failure = " ".join(check.expected or ("as before",)).strip()
    if as_json:
        nodes, weights = ({"before": one, "after": two} for one, two in zip(before, after, strict=True))
        say_json({"file": model, "output": output, "nodes": nodes, "weights": weights, "failure": failure})
        return
    say(f"{output}: fails as {model} does ({failure})")
    say(
        f"{before[0]:,} -> {after[0]:,} nodes, {before[1]:,} -> {after[1]:,} bytes of weights, {reducer.tried:,} checks"
    )


def _check(
    command_line: str | None,
    pattern: str | None,
    backend: str | None,
    pair: tuple[str, str] | None,
    tolerance: float | None,
    seed: int,
    timeout: float,
) -> Check:
    """Create the requested check. Raises ``InvalidCall`` for none and for several, and for invalid options."""
    from tenonnx_debug.failures import BackendCheck, CommandCheck

    options = ("--check", command_line), ("--fails-in", backend), ("--differs", pair)
    requested = [name for name, argument in options if argument]
    if len(requested) != 1:
        raise InvalidCall(
            "not exactly one check was given",
            given=" and ".join(requested) or "none",
            do="add --check COMMAND, --fails-in BACKEND or --differs BACKEND BACKEND",
        )
    if pattern is not None and command_line is None:
        raise InvalidCall("--check-output was given without --check", given=requested[0])
    if command_line is not None:
        return CommandCheck(command_line, pattern, timeout)
    backends = [backend] if backend is not None else list(pair or ())
    _check_installed(backends)
    return BackendCheck(backends, timeout, seed, tolerance)


def _check_installed(names: Sequence[str]) -> None:
    from tenonnx.tools import backends
    from tenonnx_debug.probe import is_interpreter

    known = dict.fromkeys(("numpy", *backends()))
    for path in filter(is_interpreter, names):
        if shutil.which(path) is None:
            raise InvalidCall("no such Python interpreter", given=path, do="give the path of one: ENV/bin/python")
    unknown = [name for name in names if name not in known and not is_interpreter(name)]
    if unknown:
        raise InvalidCall(f'no installed backend is called "{unknown[0]}"', available=", ".join(known))


def _progress(notes: Path, settings: list[Any]) -> dict[str, Any]:
    """Load the progress of an interrupted search with the same arguments; empty progress if there is none."""
    try:
        progress = json.loads(notes.read_text("utf-8"))
    except (OSError, ValueError):
        progress = None
    if isinstance(progress, dict) and progress.get("asked") == settings and isinstance(progress.get("results"), dict):
        return progress
    return {"asked": settings, "results": {}}
