"""``tenonnx check``: list all errors in a model."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from tenonnx_cli.command import Command
from tenonnx_cli.options import (
    InputShapes,
    json_option,
    model_argument,
    opened_for_reading,
    quiet_option,
    rules_given,
    shapes_option,
)
from tenonnx_cli.output import plural, say, say_json, say_lines, working
from tenonnx_cli.trust import PYTHON_FILES, UNTRUSTED_SECONDS, in_time, run_python_files, trust_given, trust_options

if TYPE_CHECKING:
    from tenonnx import Graph


@click.command(
    "check",
    cls=Command,
    examples=[
        "tenonnx check model.onnx",
        "tenonnx check upload.onnx --untrusted",
    ],
)
@model_argument
@shapes_option
@trust_options
@click.option(
    "--timeout",
    type=click.FloatRange(min=0, min_open=True),
    metavar="SECONDS",
    help="Stop after this many seconds; 60 with --untrusted.",
)
@click.option(
    "--untrusted",
    is_flag=True,
    help="Refuse all that would run code beside the installed packages, and stop after 60 s (--timeout).",
)
@quiet_option
@json_option
def command(model: str, input_shapes: InputShapes, timeout: float | None, untrusted: bool, as_json: bool) -> int:
    """List all errors in a model.

    Runs onnx.checker with full shape inference, then tenonnx's own shape inference. Operators that no installed
    package provides, and operators that runtimes accept but the specification lacks, are listed separately and are not
    errors. Exit code 1 if there are errors.
    """
    if untrusted:
        _refuse_trust()
        timeout = timeout or UNTRUSTED_SECONDS
    run_python_files()
    with in_time(timeout):
        return _checked(model, input_shapes, as_json)


def _refuse_trust() -> None:
    """Raise ``InvalidCall`` if an option would run code."""
    from tenonnx import InvalidCall

    context = click.get_current_context()
    given = {"--trust": trust_given(), "--load": context.meta.get(PYTHON_FILES), "--rules": rules_given()}
    if wrong := [name for name, value in given.items() if value]:
        raise InvalidCall(
            "--untrusted was given together with an option that trusts the model",
            given=wrong[0],
            do=f"leave {wrong[0]} out",
        )


def _checked(model: str, input_shapes: InputShapes, as_json: bool) -> int:
    from tenonnx import InvalidModel, limits, load

    problems: list[dict[str, str]] = []
    unknown: list[str] = []
    beyond: list[str] = []
    with working(f"checking {model}"):
        try:
            graph = load(opened_for_reading(model), **rules_given(), **trust_given())
            limits.check_time()
        except InvalidModel as error:
            problems.append({"found_by": "reading", "problem": str(error)})
        else:
            problems, unknown = _problems(graph, model, input_shapes)
            beyond = _beyond(graph)
    if as_json:
        found = {"file": model, "valid": not problems, "problems": problems}
        say_json({**found, "unknown_ops": unknown, "unspecified_ops": beyond})
        return 1 if problems else 0
    verdict = plural(len(problems), "problem") if problems else "valid"
    say(f"{model}: {verdict}", style="red" if problems else "green")
    for entry in problems:
        say_lines(f"{entry['found_by']}: {entry['problem']}".replace("\n", "\n  "))  # so that names cannot forge lines
    for op in unknown:
        say(f"not checked, as no installed package provides it: {op}")
    for op in beyond:
        say(f"not in the specification of that version, but supported by some runtimes: {op}")
    return 1 if problems else 0


def _problems(graph: Graph, model: str, input_shapes: InputShapes) -> tuple[list[dict[str, str]], list[str]]:
    from tenonnx import infer
    from tenonnx.tools import is_onnx_file, structure_problems
    from tenonnx_cli.describe import describe

    inferred = infer(graph, input_shapes, strict=False)
    objections = structure_problems(
        model if model != "-" and is_onnx_file(model) else graph, inferred=not inferred, graph=graph
    )
    problems = [{"found_by": "onnx.checker", "problem": text} for text in objections]
    problems += [{"found_by": "inference", "problem": str(error)} for error in inferred]
    unknown = [
        f"{op['op']}@{op['version']}, {plural(op['count'], 'node')}; {op['missing']}"
        for op in describe(graph)["ops"]
        if not op["known"]
    ]
    return problems, unknown


def _beyond(graph: Graph) -> list[str]:
    """The ops that the specification lacks, with their packages."""
    from collections import Counter

    from tenonnx.tools import beyond_the_specification
    from tenonnx_cli.describe import full_name

    ops = ((f"{full_name(n.domain, n.op_type)}@{n.version}", n.op) for n in beyond_the_specification(graph))
    found = Counter((title, graph.registry.source(op)) for title, op in ops)
    return [f"{title}, {plural(count, 'node')}; known from {source}" for (title, source), count in found.items()]
