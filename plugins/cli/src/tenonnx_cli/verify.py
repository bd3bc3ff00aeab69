"""``tenonnx verify``: whether one model computes what another does."""

from __future__ import annotations

from collections.abc import Sequence

import click

from tenonnx_cli.deadline import timeout_option, within
from tenonnx_cli.options import (
    InputShapes,
    common_sizes,
    exact_option,
    input_options,
    json_option,
    load_model,
    seed_option,
    shapes_option,
    tolerance_options,
)
from tenonnx_cli.output import complain, interruptible, say, say_json, working
from tenonnx_cli.python_model import is_made, load_made
from tenonnx_cli.verifications import say_verification


@click.command("verify")
@click.argument("first", metavar="FIRST")
@click.argument("second", metavar="SECOND")
@input_options
@shapes_option
@seed_option
@tolerance_options
@exact_option
@click.option(
    "--backend",
    "backends",
    multiple=True,
    metavar="NAME",
    help="Run both models on this backend. Repeatable; the first one named is the reference.",
)
@timeout_option
@json_option
def command(
    first: str,
    second: str,
    inputs: Sequence[str],
    archive: str | None,
    input_shapes: InputShapes,
    seed: int,
    absolute: float | None,
    relative: float | None,
    exact: bool,
    backends: Sequence[str],
    timeout: float,
    as_json: bool,
) -> int:
    """Check that two models compute the same outputs.

    Both models run on the same inputs, on numpy and, if installed, on onnxruntime. Each output is reported as
    verified, with a grade (bit for bit, within rounding, within tolerance, within one quantization step), as not
    verified, with the reason, or as different.

    Exit code 0 if outputs were compared and none differs, 1 if one differs or none could be compared, 2 for invalid
    arguments or files.
    """
    from tenonnx import verify
    from tenonnx_cli.arrays import read_feeds

    one, other = (load_made(path, (), seed).graph if is_made(path) else load_model(path) for path in (first, second))
    feeds = read_feeds(one, inputs, archive) or None
    with working(f"verifying {second}"), interruptible(), within(timeout):
        found = verify(
            one, other, feeds=feeds, input_shapes={**common_sizes(one, other), **input_shapes}, seed=seed,
            absolute=absolute, relative=relative, exact=exact, backends=backends or None,
        )  # fmt: skip
    passed = found.equal and bool(found.outputs)
    if as_json:
        say_json({"first": first, "second": second, "passed": passed, **found.to_json()})
        return 0 if passed else 1
    for note in found.notes:
        complain(f"note: {note}")
    if found.equal:
        given = f"random inputs (seed {seed})" if feeds is None else "the inputs given"
        say_verification(found, first, given)
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
