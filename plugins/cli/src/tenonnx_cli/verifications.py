"""What was compared, in words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tenonnx_cli.output import say

if TYPE_CHECKING:
    from tenonnx import Report, Verification


def said_of_inputs(given: bool, seed: int) -> str:
    """What was fed, in words."""
    return "the inputs given" if given else f"random inputs (seed {seed})"


def say_comparison(report: Report, source: str, changes: Sequence[str], given: str) -> None:
    """Print what a conversion compared, with what, and how near it is."""
    if report.verification is None:
        return
    say_verification(report.verification, report.compared_with, given)
    if report.from_source is not None:
        of = report.from_source.largest
        size = f"{of.name} ({of.backend}): {of.difference.absolute:.3g} absolute" if of else "no output is compared"
        reasons = [
            *report.from_source.problems,
            *(f"{o.name}: {o.difference.reason}" for o in _of_other_kinds(report.from_source)),
        ]
        what = f"largest difference: {size}" if not reasons else "; ".join(dict.fromkeys(reasons))
        say(f"from {source} as it was read, which --{', --'.join(changes)} changes: {what}")


def _of_other_kinds(found: Verification) -> list[Any]:
    """The outputs that are of another kind or shape, so that there are no numbers to tell."""
    return [each for each in found.outputs if not each.equal and not each.difference.absolute]


def say_verification(found: Verification, compared_with: str, given: str) -> None:
    """Print which outputs are verified, on what and how well, and which are not."""
    if found.largest is not None:
        compared = [each.backend.partition(", ") for each in found.outputs]  # "onnxruntime, batch=5"
        backends = ", ".join(dict.fromkeys(backend for backend, *_ in compared))
        others = ", ".join(dict.fromkeys(sizes for *_, sizes in compared if sizes))
        given += f", and at {others}" if others else ""
        which = ""
        if found.unverified:
            which = f" {', '.join(dict.fromkeys(each.name for each in found.outputs))}"
        say(f"verified{which} on {backends}, against {compared_with} on {found.reference}, with {given}")
        say(f"largest difference: {found.largest}")
        if found.grade not in ("", found.largest.grade):
            say(f"grade of all: {found.grade}")
    for each in found.as_used:
        say(str(each))
    for name, why in found.unverified.items():
        say(f"not verified: {name}: {why}")
