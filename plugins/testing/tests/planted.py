"""Ops with one planted mistake each, by kind."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass

import pytest

from tenonnx.extend import Op
from tenonnx_testing.cases import Case
from tenonnx_testing.checks import CHECKS
from tenonnx_testing.kit import check_case
from tenonnx_testing.run import Failure


@dataclass(frozen=True)
class Defect:
    """``make`` gives a case of an op with the defect; ``check`` is the one that finds it first."""

    kind: str
    what: str
    check: str
    make: Callable[[], Case]


#: Gives an op that is right, anew each time, and how calls of it are drawn.
Base = Callable[[], tuple[Op, Callable]]

DEFECTS: list[Defect] = []


def plant(kind: str, check: str, base: Base, rule: str, wrong: dict[str, Callable]) -> None:
    """Plant rules that are wrong in an op that is right, one each."""
    for what, function in wrong.items():
        DEFECTS.append(Defect(kind, what, check, functools.partial(_with_rule, base, rule, function)))


def _with_rule(base: Base, rule: str, function: Callable) -> Case:
    made, drawn = base()
    made.rule(rule, function)
    return Case(made, drawn)


def planted(kind: str, check: str) -> Callable[[Callable[[], Case]], Callable[[], Case]]:
    """Plant the case that the decorated function makes; its docstring says what is wrong."""

    def declare(make: Callable[[], Case]) -> Callable[[], Case]:
        DEFECTS.append(Defect(kind, make.__doc__, check, make))
        return make

    return declare


def fails(case: Case, name: str) -> str:
    """Message of a check on a case; nothing where it holds or does not apply."""
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
    """All checks that fail of a case, with what they say."""
    return {name: said for name in CHECKS if (said := fails(case, name))}


INTRODUCTION = """# Planted defects

Does the [conformance kit](../how-to/plugin-tests.md) find mistakes? Its tests plant one defect at a time in a
correct op, and require a check to fail at the default number of calls; without the defect, all checks must pass.
{count} of {count} defects are found, with no false alarm. The table names the check that finds each: `numpy=body`
compares the numpy rule with the body on random inputs, `variations` on other ranks, sizes and element types.
`tools/generate_planted_defects.py` writes this page.

| kind | what is wrong | found by |
| --- | --- | --- |
"""


def page() -> str:
    """The page of the docs that tells of them."""
    rows = (f"| {each.kind} | {each.what} | {each.check} |\n" for each in DEFECTS)
    return INTRODUCTION.format(count=len(DEFECTS)) + "".join(rows)
