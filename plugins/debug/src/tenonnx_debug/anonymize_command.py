"""``tenonnx anonymize``: a model without its names, texts and weights."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

import click

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


@click.command(
    "anonymize",
    cls=Command,
    examples=[
        "tenonnx anonymize model.onnx -o shareable.onnx",
        "tenonnx anonymize model.onnx -o part.onnx --json",
    ],
)
@model_argument
@output_option
@click.option(
    "--keep-weights", "keep", multiple=True, metavar="NAME", help="Keep the numbers of an initializer. Repeatable."
)
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Seed of the new numbers.")
@click.option(
    "--check",
    "command_line",
    metavar="COMMAND",
    help="A command that fails (exit status other than 0) for the model, whose path replaces {model} or is appended; "
    "exit code 1 unless it fails for the result as it does for the model.",
)
@click.option(
    "--timeout",
    type=click.FloatRange(min=0, min_open=True),
    default=60.0,
    show_default=True,
    metavar="SECONDS",
    help="Time limit of the command of --check.",
)
@quiet_option
@json_option
def command(
    model: str, output: str, keep: Sequence[str], seed: int, command_line: str | None, timeout: float, as_json: bool
) -> int:
    """Replace the names, texts and weights of a model, to attach it to a bug report.

    Op types, domains and attributes of installed packages stay, as do enumerated texts, numbers in attributes, and
    small integer tensors, which are shapes, axes and indices. Weights become random numbers with the same zeros, range
    and special values. Names of inputs and outputs change, too.
    """
    from tenonnx_debug.anonymize import anonymize
    from tenonnx_debug.failures import CommandCheck
    from tenonnx_debug.files import read_message, write_message

    with working(f"anonymizing {model}"):
        source = read_message(model)
        anonymized = anonymize(source, keep=keep, seed=seed)
        fails: bool | None = None
        if command_line is not None:
            with contextlib.closing(CommandCheck(command_line, None, timeout)) as check:
                fails = check(source) and check(anonymized)
        write_message(anonymized, output)
    if as_json:
        say_json({"file": model, "output": output, "fails": fails})
    else:
        say(f"{output}: {len(anonymized.graph.node):,} nodes without the names and weights of {model}")
        if fails is not None:
            complain("it fails as the model does" if fails else "it does not fail as the model does")
    return 1 if fails is False else 0
