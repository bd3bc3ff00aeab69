"""``tenonnx compare``: differences between two models."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from tenonnx import InvalidCall
from tenonnx_cli.command import Command
from tenonnx_cli.comparison import ComparisonOptions, comparison_options
from tenonnx_cli.deadline import within
from tenonnx_cli.options import FILE, json_option, load_model, quiet_option, rules_option, verbose_option
from tenonnx_cli.output import complain, plural, say, say_json, say_lines, say_table
from tenonnx_cli.parts import pairs, renaming
from tenonnx_cli.quantiles import quantiles, say_quantiles
from tenonnx_cli.verifications import said_verdict, say_differences, say_verdict

if TYPE_CHECKING:
    from tenonnx import Graph
    from tenonnx_cli.compare_models import Comparison


@click.command(
    "compare",
    cls=Command,
    examples=[
        "tenonnx compare before.onnx after.onnx",
        "tenonnx compare after.onnx --outputs outputs.npz --rtol 1e-3",
    ],
)
@click.argument("first", type=FILE, metavar="FIRST")
@click.argument("second", type=FILE, metavar="[SECOND]", required=False)
@click.argument("rest", nargs=-1, metavar="")
@rules_option
@click.option(
    "--outputs",
    "saved",
    type=FILE,
    metavar="FILE",
    help="Compare the outputs of FIRST with those that tenonnx run -o FILE.npz wrote, in place of a SECOND.",
)
@click.option(
    "--map",
    "mapping",
    multiple=True,
    callback=pairs,
    metavar="A=B",
    help="Input or output A of FIRST is named B in SECOND. Repeatable.",
)
@comparison_options
@click.option(
    "--quantiles",
    "by_share",
    is_flag=True,
    help="Also show the differences that 50%, 90%, 99% and 99.9% of the elements of an output do not exceed, on numpy.",
)
@click.option("--markdown", is_flag=True, help="Print tables in Markdown, for a comment on a pull request.")
@click.option(
    "--git",
    is_flag=True,
    help="Compare as the diff driver of git, with the arguments that git gives: "
    'git config diff.onnx.command "tenonnx compare --git".',
)
@quiet_option
@verbose_option
@json_option
def command(
    first: str,
    second: str | None,
    rest: Sequence[str],
    saved: str | None,
    mapping: Sequence[str],
    comparison: ComparisonOptions,
    by_share: bool,
    markdown: bool,
    git: bool,
    verbose: bool,
    as_json: bool,
) -> int:
    """Compare two models: their structure, their numbers, and the first node that diverges.

    FIRST runs on numpy, SECOND on numpy and, if installed, on onnxruntime. Exit code 1 if inputs, outputs or their
    values differ; a different graph structure alone is not a failure. With --outputs, FIRST runs on these backends and
    is compared with the outputs in a file; the same --seed gives the same random inputs as in tenonnx run.
    """
    if (git or markdown) and as_json:
        raise InvalidCall("two forms of the output were given", given=f"{'--git' if git else '--markdown'} and --json")
    if git:
        return _compare_for_git(first, second, rest, comparison)
    if rest:
        raise InvalidCall("compare got more than two models", given=" ".join(rest), do="leave them out")
    if saved is not None:
        if second is not None or mapping:
            given = "--map" if second is None else second
            what = "--outputs was given together with a second model"
            raise InvalidCall(what, given=given, do=f"leave {given} out")
        return _compare_saved(first, saved, comparison, by_share, verbose, as_json)
    if second is None:
        raise InvalidCall("compare got no second model", given=first, do="name it, or give --outputs FILE.npz")
    from tenonnx_cli.compare_models import call_alike, compared

    with within(comparison.timeout):
        one, other = load_model(first), load_model(second)
    call_alike(one, other, renaming(one, mapping))
    found = compared(one, other, comparison.run(one, other, f"comparing {first} and {second}", structure=False))
    shares = comparison.quantiles(one, other) if by_share else None
    if as_json:
        say_json({"first": first, "second": second, "quantiles": shares, **found.to_dict()})
        return 0 if found.equal else 1
    if markdown:
        from tenonnx_cli.markdown import markdown_of

        say_lines(markdown_of(found, first, second))
        return 0 if found.equal else 1
    _say(found, first, second, comparison, verbose)
    if hint := _map_hint(one, other):
        complain(f"hint: {hint} compares them, if they are the same")
    say_lines(f"numbers: {found.verification.summary()}")
    say_quantiles(shares or {})
    return 0 if found.equal else 1


def _say(found: Comparison, first: str, second: str, comparison: ComparisonOptions, verbose: bool) -> None:
    """Print the verdict and the structural differences."""
    say_verdict(
        f"{second}: {said_verdict(found.verification, first, comparison.inputs_description)}", found.verification
    )
    for kind, rows in found.structure.items():
        say(f"{kind.replace('_', ' ')}: {plural(len(rows), 'difference')}")
        shown = rows if verbose else rows[:_ROWS]
        say_table([(row["name"], _cell(row["first"]), _cell(row["second"])) for row in shown], ("", first, second))
        if len(shown) < len(rows):
            say(f"  and {len(rows) - len(shown):,} more (-v lists all)")
    if not found.structure:
        say("structure: equal")
    say(f"{found.paired:,} of {plural(found.values, 'computed value')} of {second} paired with those of {first}")


def _compare_for_git(path: str, old: str | None, rest: Sequence[str], comparison: ComparisonOptions) -> int:
    """Print the differences between two versions of a file; returns 0, as git treats other codes as failures."""
    if old is None or len(rest) < 5:
        given = " ".join([path, *([old] if old else []), *rest])
        raise InvalidCall(
            "--git was called without the seven arguments of a diff driver",
            given=given,
            do='git config diff.onnx.command "tenonnx compare --git", and "*.onnx diff=onnx" in .gitattributes',
        )
    from tenonnx import TenonnxError
    from tenonnx_cli.compare_models import compared

    new = rest[2]
    say(f"diff --tenonnx a/{path} b/{path}")
    if "/dev/null" in (old, new):
        say(f"{path}: {'added' if old == '/dev/null' else 'deleted'}")
        return 0
    try:
        with within(comparison.timeout):
            one, other = load_model(old), load_model(new)
        found = compared(one, other, comparison.run(one, other, f"comparing {path}", structure=False))
    except TenonnxError as error:  # external data, which git does not pass
        say_lines(f"not compared: {error}")
        return 0
    _say(found, "before", "after", comparison, verbose=False)
    say_lines(f"numbers: {found.verification.summary()}")
    return 0


def _cell(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)


#: Maximum number of rows for a kind of difference, without -v.
_ROWS = 20


def _compare_saved(
    model: str, saved: str, comparison: ComparisonOptions, by_share: bool, verbose: bool, as_json: bool
) -> int:
    """Compare a model with outputs in a file."""
    from tenonnx_cli.arrays import read_outputs
    from tenonnx_cli.compare_models import computed

    with within(comparison.timeout):
        graph = load_model(model)
    expected = read_outputs(graph, saved)
    found, actual = comparison.run_saved(graph, expected, saved, f"comparing {model} with {saved}")
    shares = quantiles(actual, expected) if by_share else None
    if as_json:
        report = {"first": saved, "second": model, "structure": {}, "paired": 0, "values": computed(graph)}
        say_json({**report, "quantiles": shares, **found.to_dict()})
        return 0 if found.equal else 1
    say_verdict(f"{model}: {said_verdict(found, saved, comparison.inputs_description)}", found)
    for problem in found.problems:
        say(f"  {problem}")
    say_differences(found, verbose=verbose)
    say_quantiles(shares or {})
    return 0 if found.equal else 1


def _map_hint(one: Graph, other: Graph) -> str:
    """Options that pair inputs and outputs whose names exist in one model only, in order."""
    found = []
    for ours, theirs in ((one.inputs, other.inputs), (one.outputs, other.outputs)):
        names = [[v.name for v in side] for side in (ours, theirs)]
        alone = [[n for n in names[0] if n not in names[1]], [n for n in names[1] if n not in names[0]]]
        if len(alone[0]) == len(alone[1]):
            found += [f"--map {a}={b}" for a, b in zip(*alone, strict=True)]
    return " ".join(found)
