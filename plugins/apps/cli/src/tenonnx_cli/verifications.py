"""Verifications as text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tenonnx_cli.output import say, say_table

if TYPE_CHECKING:
    from tenonnx import Report, Verification


def said_of_inputs(given: bool, seed: int) -> str:
    """Description of the inputs."""
    return "the inputs given" if given else f"random inputs (seed {seed})"


def has_passed(found: Verification | None) -> bool | None:
    """Whether all outputs match; None if no output was compared."""
    if found is None or (found.equal and not found.outputs):
        return None
    return found.equal


def said_verdict(found: Verification | None, compared_with: str, given: str) -> str:
    """The verdict and the reference, in one line."""
    if found is None or has_passed(found) is None:
        return "not verified"
    if not found.equal:
        return f"differs from {oracle(found, compared_with)}, on {given_of(found, given)}"
    which = ""
    if found.unverified:
        compared = len({each.name for each in found.outputs})
        which = f" {compared} of {compared + len(found.unverified)} outputs"
    grade = f" {found.grade}" if found.grade else ""
    return f"verified{which}{grade} against {oracle(found, compared_with)}, on {given_of(found, given)}"


def oracle(found: Verification, source: str) -> str:
    """Name of the reference: a framework, or the original file in its runtimes."""
    from tenonnx.tools import backends

    where = " and ".join(_backends(found))
    if found.reference in _backends(found):
        return f"{source} in {where}"
    original = f"{source} in {found.reference}" if found.reference in ("numpy", *backends()) else found.reference
    return f"{original}, run in {where}"


def _backends(found: Verification) -> list[str]:
    """The backends on which outputs were computed."""
    return list(dict.fromkeys(each.backend for each in found.outputs))


def given_of(found: Verification, given: str) -> str:
    """Description of the inputs, with the additional runs, and the regions that none entered."""
    runs = dict.fromkeys([*(run.feeds for run in found.runs[1:]), *(each.run for each in found.outputs)])
    others = ", ".join(filter(None, runs))
    said = f"{given}, and at {others}" if others else given
    return f"{said}; {', '.join(found.never_ran)} never ran" if found.never_ran else said


def say_verdict(text: str, found: Verification | None) -> None:
    """Print a verdict: green if all is verified, yellow if something is not, red if something differs."""
    passed = has_passed(found)
    good = found is not None and found.verified
    say(text, style="red" if passed is False else "green" if good else "yellow")


def say_comparison(report: Report, source: str, changes: Sequence[str], *, verbose: bool = False) -> None:
    """Print the differences from the original, and from the source if changes were intended."""
    if report.verification is None:
        return
    say_differences(report.verification, verbose=verbose)
    if report.from_source is not None:
        of = report.from_source.largest
        size = f"{of.name} ({of.location}): {of.difference.absolute:.3g} absolute" if of else "no output is compared"
        reasons = [
            *report.from_source.problems,
            *(f"{o.name}: {o.difference.reason}" for o in _of_other_types(report.from_source)),
        ]
        what = f"largest difference: {size}" if not reasons else "; ".join(dict.fromkeys(reasons))
        say(f"from {source} as it was read, which --{', --'.join(changes)} changes: {what}")


def _of_other_types(found: Verification) -> list[Any]:
    """The outputs with different types or shapes, for which there are no numeric differences."""
    return [each for each in found.outputs if not each.equal and not each.difference.absolute]


def say_differences(found: Verification, *, verbose: bool = False) -> None:
    """Print the largest difference of each output by backend as a table, and what was not compared."""
    names = list(dict.fromkeys(each.name for each in found.outputs))
    shown = names if verbose else names[:_OUTPUTS]
    grades = {each.name: each.grade for each in found.states}
    rows = []
    for name in shown:
        of = [each for each in found.outputs if each.name == name]
        worst = [max((e for e in of if e.backend == b), key=_size, default=None) for b in _backends(found)]
        how = max(of, key=_size)
        said = how.difference.reason if not how.equal else "; ".join(filter(None, (grades.get(name), how.rule)))
        rows.append((name, *("-" if each is None else f"{each.difference.absolute:.3g}" for each in worst), said))
    if rows:
        say()
        say_table(rows, ("largest difference", *_backends(found), ""))
    if len(names) > len(shown):
        say(f"  and {len(names) - len(shown):,} more outputs (-v lists all)")
    for each in found.default_session:
        if verbose or not each.equal:
            say(str(each))
    for name, why in found.unverified.items():
        say(f"not verified: {name}: {why}")
    for name, why in found.never_ran.items():
        say(f"never ran: {name}: {why}")


def _size(output: Any) -> tuple[bool, float]:
    return not output.equal, output.difference.absolute


#: Maximum number of outputs whose differences are printed without -v.
_OUTPUTS = 20
