"""Ops with one planted defect each, by kind."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from tenonnx.extend import Op
from tenonnx_testing.cases import Case
from tenonnx_testing.checks import CHECKS
from tenonnx_testing.kit import check_case
from tenonnx_testing.run import Failure


@dataclass(frozen=True)
class Defect:
    """A defect: ``make`` returns a case of an op with the defect; ``check`` is the first check that finds it."""

    kind: str
    what: str
    check: str
    make: Callable[[], Case]


#: Function that returns a new correct op and a function that draws calls of it.
Base = Callable[[], tuple[Op, Callable]]

DEFECTS: list[Defect] = []


def plant(kind: str, check: str, base: Base, rule: str, wrong: dict[str, Callable]) -> None:
    """Plant each of the ``wrong`` rules, by description, in a correct op."""
    for what, function in wrong.items():
        DEFECTS.append(Defect(kind, what, check, functools.partial(_with_rule, base, rule, function)))


def _with_rule(base: Base, rule: str, function: Callable) -> Case:
    made, drawn = base()
    made.rule(rule, function)
    return Case(made, drawn)


def planted(kind: str, check: str) -> Callable[[Callable[[], Case]], Callable[[], Case]]:
    """Return a decorator for a function that returns a case of a defective op; its docstring describes the defect."""

    def declare(make: Callable[[], Case]) -> Callable[[], Case]:
        DEFECTS.append(Defect(kind, make.__doc__, check, make))
        return make

    return declare


def fails(case: Case, name: str) -> str:
    """Message of a failing check on a case; empty if it passes or does not apply."""
    if not CHECKS[name].applies(case):
        return ""
    try:
        check_case(case, name)
    except Failure as failure:
        return str(failure)
    except (pytest.skip.Exception, pytest.xfail.Exception):
        pass
    return ""


def found(case: Case) -> dict[str, str]:
    """Messages of all failing checks of a case, by name."""
    return {name: output for name in CHECKS if (output := fails(case, name))}


INTRODUCTION = """# Planted defects

Does the [conformance kit](../how-to/plugin-tests.md) find mistakes? Its tests plant one defect at a time in a rule or
the body of a correct op, and require that a check fails with the default number of random calls. Without the defect,
all checks must pass. {count} of {count} defects are found, with no false alarm.

The first column is the rule or the situation. The second is what the rule does wrong: `NaN as 0` returns 0 where it
should return NaN. The third is the check that finds it: `numpy=body` compares the numpy rule with the body on random
inputs, `variations` does so on other ranks, sizes and element types.
`tools/generate_planted_defects.py` writes this page.

## Mistakes of authors

{total} mistakes of authors are planted in the same way in {ops} ops of a package with their own cases, as [the
guide](../how-to/plugin-tests.md) shows them; the kit finds {found}, {share:.1%}. `plugins/testing/tests/mistakes.py`
measures this, names those that escape, and with `--save` writes the table.

| kind | found | of |
| --- | --- | --- |
{kinds}
## Defects by check

| kind | what is wrong | found by |
| --- | --- | --- |
"""


def page() -> str:
    """Return the page of the documentation with a table of all defects."""
    rows = (f"| {each.kind} | {each.what} | {each.check} |\n" for each in DEFECTS)
    authored = Path(__file__).with_name("authored")
    shares = json.loads((authored / "found.json").read_text("utf-8"))
    result, total = (sum(numbers) for numbers in zip(*shares.values(), strict=True))
    introduction = INTRODUCTION.format(
        count=len(DEFECTS),
        total=total,
        found=result,
        share=result / total,
        ops=len(list(authored.glob("[a-z]*.py"))),
        kinds="".join(f"| {kind} | {some} | {of} |\n" for kind, (some, of) in shares.items()),
    )
    return introduction + "".join(rows)
