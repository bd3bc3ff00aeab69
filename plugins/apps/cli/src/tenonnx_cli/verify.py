"""``tenonnx verify``: compare the outputs of two models."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click

from tenonnx_cli.command import Command
from tenonnx_cli.comparison import ComparisonOptions, comparison_options
from tenonnx_cli.deadline import within
from tenonnx_cli.options import FILE, json_option, load_model, quiet_option, rules_option, verbose_option
from tenonnx_cli.output import complain, say, say_json
from tenonnx_cli.python_model import is_made, load_made
from tenonnx_cli.verifications import has_passed, said_verdict, say_differences, say_verdict


@click.command(
    "verify",
    cls=Command,
    examples=[
        "tenonnx verify before.onnx after.onnx --inputs samples.npz",
        "tenonnx verify model.onnx",
    ],
)
@click.argument("first", type=FILE, metavar="FIRST")
@click.argument("second", type=FILE, metavar="[SECOND]", required=False)
@rules_option
@comparison_options
@click.option(
    "--backend",
    "backends",
    multiple=True,
    metavar="NAME",
    help="Run both models on this backend. Repeatable; the first one named is the reference.",
)
@quiet_option
@verbose_option
@json_option
def command(
    first: str,
    second: str | None,
    comparison: ComparisonOptions,
    backends: Sequence[str],
    verbose: bool,
    as_json: bool,
) -> int:
    """Check that two models compute the same outputs, or that one model does on all backends.

    Both models run on the same inputs, on numpy and, if installed, on onnxruntime. Each output is reported as
    verified, with a grade (bit for bit, within rounding, within tolerance, within one quantization step), as not
    verified, with the reason, or as different. Without SECOND, or where it is the same file, the model on onnxruntime
    is compared with the model on numpy, which computes by the definitions of the ops.

    Exit code 0 if outputs were compared and none differs, 1 if one differs or none could be compared, 2 for invalid
    arguments or files.
    """
    name = second or first
    alone = _is_same_file(first, name)
    paths = (first,) if alone else (first, name)
    with within(comparison.timeout):
        one, *others = (
            load_made(each, (), comparison.seed).graph if is_made(each) else load_model(each) for each in paths
        )
    found = comparison.run(one, others[0] if others else None, f"verifying {name}", backends=backends or None)
    passed = has_passed(found) is True
    if as_json:
        say_json({"first": first, "second": name, "passed": passed, **found.to_dict()})
        return 0 if passed else 1
    for note in found.notes:
        complain(f"note: {note}")
    if found.equal:
        say_verdict(f"{name}: {said_verdict(found, first, comparison.inputs_description)}", found)
        say_differences(found, verbose=verbose)
        return 0 if passed else 1
    say(f"{first} differs between backends:" if alone else f"{name} differs from {first}:")
    for problem in found.problems:
        say(f"  {problem}")
    for state in found.states:
        why = state.reason or state.grade
        say(f"  {state.state}: {state.name}" + (f": {why}" if why else ""))
    if found.first_divergence:
        say(f"  the first node that diverges: {found.first_divergence}")
    return 1


def _is_same_file(one: str, other: str) -> bool:
    """Whether two paths, or two functions of Python files, are the same model."""
    if one == other:
        return True
    paths = Path(one), Path(other)
    return all(path.exists() for path in paths) and paths[0].samefile(paths[1])
