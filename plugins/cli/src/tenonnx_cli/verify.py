"""``tenonnx verify``: whether one model computes what another does."""

from __future__ import annotations

from collections.abc import Sequence

import click

from tenonnx_cli.comparison import ComparisonOptions, comparison_options
from tenonnx_cli.options import json_option, load_model, models_argument
from tenonnx_cli.output import complain, say, say_json
from tenonnx_cli.python_model import is_made, load_made
from tenonnx_cli.verifications import say_verification


@click.command("verify")
@models_argument
@comparison_options
@click.option(
    "--backend",
    "backends",
    multiple=True,
    metavar="NAME",
    help="Run both models on this backend. Repeatable; the first one named is the reference.",
)
@json_option
def command(first: str, second: str, comparison: ComparisonOptions, backends: Sequence[str], as_json: bool) -> int:
    """Check that two models compute the same outputs.

    Both models run on the same inputs, on numpy and, if installed, on onnxruntime. Each output is reported as
    verified, with a grade (bit for bit, within rounding, within tolerance, within one quantization step), as not
    verified, with the reason, or as different.

    Exit code 0 if outputs were compared and none differs, 1 if one differs or none could be compared, 2 for invalid
    arguments or files.
    """
    paths = (first, second)
    one, other = (load_made(path, (), comparison.seed).graph if is_made(path) else load_model(path) for path in paths)
    found = comparison.run(one, other, f"verifying {second}", backends=backends or None)
    passed = found.equal and bool(found.outputs)
    if as_json:
        say_json({"first": first, "second": second, "passed": passed, **found.to_json()})
        return 0 if passed else 1
    for note in found.notes:
        complain(f"note: {note}")
    if found.equal:
        say_verification(found, first, comparison.given)
        return 0 if passed else 1
    say(f"{second} differs from {first}:")
    for problem in found.problems:
        say(f"  {problem}")
    for state in found.states:
        why = state.reason or state.grade
        say(f"  {state.state}: {state.name}" + (f": {why}" if why else ""))
    if found.first_divergence:
        say(f"  the first node that diverges: {found.first_divergence}")
    return 1
