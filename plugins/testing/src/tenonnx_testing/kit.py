"""Execution of checks on drawn calls, with gaps, shrinking and replay."""

from __future__ import annotations

import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from pathlib import Path
from types import FunctionType
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import HealthCheck, Phase, Verbosity, given, seed, settings
from hypothesis import strategies as st
from hypothesis.errors import Flaky
from hypothesis.internal.conjecture.providers import HypothesisProvider

import tenonnx
from tenonnx.extend import InvalidCall, Op
from tenonnx.extend.testing import signature_at
from tenonnx.extend.transforms import same_attribute
from tenonnx_testing.cases import EXAMPLES, Call, Case, Gap, collected, load
from tenonnx_testing.causes import cause_of, line_of
from tenonnx_testing.checks import CHECKS, Check
from tenonnx_testing.repro import one_line, replay_line
from tenonnx_testing.run import Failure, Outputs, blaming, completed, evaluate
from tenonnx_testing.schemas import versions
from tenonnx_testing.selection import by_coverage, undrawn_combinations

#: Factor of drawn calls before a gap is reported as stale.
STUBBORN = 10

#: Minimum number of calls drawn from a case, of which those that cover most features are selected.
DRAWS = 40

#: Seconds of processor time spent on shrinking a failing call.
SIMPLIFYING = 1.0

#: Upper bound of the first turn of a case, divisible by all small numbers.
TURNS = 840

#: Seed of all draws, in a list so that it can be set.
_SEED = [0]

#: Minimum number of affected calls, or all calls if fewer, before a gap is reported as stale.
ENOUGH = 12

#: Number of different subsets of the drawn calls that checks use; each subset has the simplest call.
SHARES = 3

#: Notes on an op that does not compute a drawn call, and on one that changes an input.
NOT_COMPUTED = "the case draws a call that the op does not compute: draw others, or mend the op"
WRITES = "the op writes into an input, which other nodes may read: compute a new array, as in x = x + y for x += y"

#: Offset of the checked versions from one call to the next.
SPREAD = 3


def check_case(case: Case, name: str, examples: int = EXAMPLES) -> None:
    """Run one check on drawn calls of a case.

    Raises ``Failure`` if the check fails or, with at least ``EXAMPLES`` calls, a gap is stale. Raises pytest's xfail
    for known gaps, and skip if nothing could be compared.
    """
    check = CHECKS[name]
    judged = examples >= EXAMPLES  # with fewer calls a gap may look stale
    compared, gaps = run_check(case, check, examples)
    if judged and any(seen.is_stale for seen in gaps.values()):
        compared, gaps = run_check(case, check, examples * STUBBORN)
    case.compared[name] = case.compared.get(name, 0) + compared
    for gap, seen in gaps.items():
        if judged and seen.is_stale and seen.met >= min(ENOUGH, len(_share(case, check, examples * STUBBORN))):
            raise Failure(f"{case.op.title}: the gap of {name} is stale, nothing fails any more: {gap.reason}")
    if named := sorted(case.undrawn.keys() & case.drawn_names):
        raise Failure(f"{case.op.title}: {', '.join(named)} declared as undrawn, but a call has it")
    known = [gap for gap, seen in gaps.items() if seen.failed and gap.when is None]
    if known:
        pytest.xfail("; ".join(gap.reason for gap in known))
    if name == "oracle" and not compared:
        answers = "; ".join(f"{oracle}: {answer}" for oracle, answer in case.refusals.items())
        raise Failure(f"{case.op.title} is a primitive that nothing else computes: {answers or 'it has no oracle'}")
    if not compared:
        pytest.skip(f"nothing to compare with: {case.refusals.get(name, check.missing)}")


def run_check(case: Case, check: Check, examples: int) -> tuple[int, dict[Gap, _Seen]]:
    """Run a check on ``examples`` drawn calls; return the number of comparisons, and counts by gap."""
    gaps = {gap: _Seen() for gap in case.gaps_of(check.name)}
    compared = 0
    for turn, drawn in enumerate(_share(case, check, examples), zlib.crc32(case.title.encode()) % TURNS):
        try:
            compared += _check_call(case, check, drawn, turn, gaps)
        except Failure as failure:
            try:
                _raise_simplest(case, check, turn, examples)
            except Flaky:
                failure.add_note("the same call does not fail each time: what it gives depends on more than the call")
            raise
    return compared, gaps


def replay(
    name: str,
    op: Op,
    /,
    *inputs: Any,
    _case: int = 0,
    _turn: int = 0,
    _outputs: int | None = None,
    **attributes: Any,
) -> None:
    """Run one check on one call again; the line "reproduce" of a failure calls this.

    Raises ``Failure`` if the check fails, and ``InvalidCall`` for an op without cases or an unknown check.
    """
    load()
    cases = [case for case in collected(op) if case.number == _case]
    if not cases or name not in CHECKS:
        raise InvalidCall(f'cannot replay "{name}" of {op.title}', available=", ".join(CHECKS) if cases else "no case")
    case, check = cases[0], CHECKS[name]
    gaps = {gap: _Seen() for gap in case.gaps_of(name)}
    _check_call(case, check, _Drawn(case, Call(inputs, attributes, _outputs)), _turn, gaps)


# ----- drawing --------------------------------------------------------------------------------------------------------


class _Drawn:
    """A drawn call, with its completed form and its outputs cached for all checks."""

    def __init__(self, case: Case, call: Call) -> None:
        self.op, self.call = case.op, call

    @cached_property
    def completed(self) -> Call:
        return completed(self.op, self.call)

    @cached_property
    def expected(self) -> Outputs:
        return evaluate(self.op, self.completed)


@contextmanager
def _reproducible_draws() -> Iterator[None]:
    """Disable hypothesis' draws of constants from imported source files, which differ between environments."""
    with patch.object(HypothesisProvider, "_maybe_draw_constant", lambda *_, **__: None, create=True):
        yield


def _draw(case: Case, count: int, take: Callable[[_Drawn], None], *phases: Phase) -> None:
    """Call ``take`` with ``count`` calls of a case, always the same ones."""

    @seed(zlib.crc32(case.title.encode()) ^ _SEED[0])
    @settings(
        max_examples=count,
        database=None,
        deadline=None,
        verbosity=Verbosity.quiet,
        report_multiple_bugs=False,
        suppress_health_check=list(HealthCheck),
        phases=[Phase.generate, *phases],
    )
    @given(_calls(case))
    def run(drawn: Call) -> None:
        take(_Drawn(case, drawn))

    with _reproducible_draws():
        run()


@st.composite
def _calls(draw: Callable[[st.SearchStrategy[Any]], Any], case: Case) -> Call:
    return case.function(draw)


@lru_cache(maxsize=16)  # checks of a case run one after the other, followed by those of its op
def _draws(case: Case, count: int) -> list[_Drawn]:
    result: list[_Drawn] = []
    _draw(case, count, result.append)
    case.combinations = undrawn_combinations([drawn.call for drawn in result])
    return result


@lru_cache(maxsize=16)
def _pool(case: Case, count: int, covering: bool = False) -> list[_Drawn]:
    if not covering:
        return _draws(case, count)
    return by_coverage(_draws(case, max(DRAWS, count)), count, lambda drawn: drawn.call)


def draws(case: Case) -> list[Call]:
    """Default calls of a case, not completed."""
    return [drawn.call for drawn in _draws(case, DRAWS)]


def seed_draws(number: int) -> None:
    """Set the seed of all further draws; the default is 0."""
    if _SEED[0] != number:
        _SEED[0] = number
        _draws.cache_clear()
        _pool.cache_clear()


def calls(case: Case, count: int) -> list[Call]:
    """Return ``count`` completed calls of a case, always the same ones."""
    return [drawn.completed for drawn in _pool(case, count)]


def covering_calls(case: Case, count: int) -> list[Call]:
    """Return ``count`` completed calls of a case that cover most features, and one for each further element type."""
    chosen = _pool(case, count, covering=True)
    others = [drawn for drawn in _draws(case, max(DRAWS, count)) if drawn not in chosen]
    known = {first_dtype(drawn.call) for drawn in chosen}
    found = list(chosen)
    for drawn in others:
        if (kind := first_dtype(drawn.call)) not in known:
            known.add(kind)
            found.append(drawn)
    return [drawn.completed for drawn in found]


def first_dtype(call: Call) -> str:
    """Dtype of the first input as text; empty unless it is an array."""
    return next((str(getattr(each, "dtype", "")) for each in call.inputs), "")


def pool_size(examples: int) -> int:
    """Number of calls to draw for ``examples`` per check; above the default, all checks use the same calls."""
    return 1 + SHARES * (examples - 1) if examples <= EXAMPLES else examples


def _share(case: Case, check: Check, examples: int) -> list[_Drawn]:
    """Calls of a check: the simplest one, and a subset that differs from those of neighboring checks."""
    first, *others = _pool(case, pool_size(examples), check.covering)
    count = examples if check.examples is None else -(-examples * check.examples // EXAMPLES)
    begin = list(CHECKS).index(check.name) % SHARES * (examples - 1)
    turned = [*others[begin % max(1, len(others)) :], *others[: begin % max(1, len(others))]]
    return [first, *sorted(turned, key=lambda drawn: -check.prefers(drawn.call))[: count - 1]]


def _raise_simplest(case: Case, check: Check, turn: int, examples: int) -> None:
    """Raise the failure of the simplest failing call found in time; return if none fails again."""
    until = time.process_time() + SIMPLIFYING
    failing: set[str] = set()

    def fails(drawn: _Drawn) -> None:
        text = one_line(case.op, drawn.call)
        if time.process_time() > until and text not in failing:
            return
        try:
            _check_call(case, check, drawn, turn, {gap: _Seen() for gap in case.gaps_of(check.name)})
        except Failure:
            failing.add(text)
            raise

    count = pool_size(examples)
    _draw(case, max(DRAWS, count) if check.covering else count, fails, Phase.shrink)


@dataclass(slots=True)
class _Seen:
    """Number of calls that a gap covers, and of failures among them."""

    met: int = 0
    failed: int = 0

    @property
    def is_stale(self) -> bool:
        return self.met > 0 and not self.failed


def _check_call(case: Case, check: Check, drawn: _Drawn, turn: int, gaps: dict[Gap, _Seen]) -> int:
    compared = 0
    met: set[Gap] = set()
    whole = None
    try:
        if case.unusable not in ("", check.name):
            pytest.skip(f'a call of its case cannot be computed: see the check "{case.unusable}"')
        try:
            with blaming(f"{case.op.title} on the drawn inputs"):
                whole = drawn.completed
                case.drawn_names |= given_names(case.op, whole)
                case.left_out |= left_out_names(case.op, whole)
                expected = drawn.expected
        except Failure as failure:
            case.unusable = check.name
            writes = "is read-only" in str(failure)
            failure.add_note(
                WRITES if writes else "the case draws a call that the op does not compute: draw others, or mend the op"
            )
            raise
        for version in check.versions(case)[turn * SPREAD % check.stride :: check.stride]:
            call = replace(whole, version=version, turn=turn)
            gap = next((gap for gap in gaps if gap.covers(call)), None)
            try:
                found = check.run(case, call, expected)
            except Failure as failure:
                gap = gap or next((gap for gap in gaps if gap.covers(failure.call or call)), None)
                if gap is None:
                    raise
                found = True
                gaps[gap].failed += 1
            except Exception as error:
                if not line_of(case.op, error):  # an error of the kit itself
                    raise
                what = f'the check "{check.name}" of {case.op.title}'
                raise Failure(f"{what} raised {type(error).__name__}: {error}") from error
            if gap is not None and found:
                met.add(gap)
            compared += found
    except Failure as failed:
        cause = cause_of(check.name, case, drawn.call if whole is None else whole, failed)
        if place := line_of(case.op, cause):
            cause.add_note(f"at {place}")
        line = replay_line(check.name, case.op, drawn.call, case.number, turn)
        cause.add_note(f"reproduce: {line}")
        cause.add_note(f"written at: {', '.join(_source_locations(case.op))}")
        if cause is failed:
            raise
        raise cause from cause.__cause__
    for gap in met:
        gaps[gap].met += 1
    return compared


def _source_locations(op: Op) -> list[str]:
    """Source locations of the body, rules, older meanings and lowerings of an op, except those in core."""
    written = {"body": op.function, **op.rules}
    written |= {f"the meaning below {older.before}": older.function for older in op.meanings if older is not op}
    written |= {f"lowering {place}": function for place, (_, function) in enumerate(op.lowerings)}
    codes = {what: function.__code__ for what, function in written.items() if isinstance(function, FunctionType)}
    core = str(Path(tenonnx.__file__).parent)
    return [
        f"{what} {code.co_filename}:{code.co_firstlineno}"
        for what, code in codes.items()
        if not code.co_filename.startswith(core)
    ]


def given_names(op: Op, drawn: Call) -> set[str]:
    """Names of present inputs and of attributes that differ from their default."""
    inputs = {op.signature.input_at(k).name for k, given in enumerate(drawn.inputs) if given is not None}
    defaults = op.signature.attributes
    return inputs | {name for name, a in drawn.attributes.items() if not same_attribute(a, defaults.get(name))}


def left_out_names(op: Op, drawn: Call) -> set[str]:
    """Names of the optional inputs that are absent in a call."""
    present = {op.signature.input_at(k).name for k, given in enumerate(drawn.inputs) if given is not None}
    return {*optional(op)} - present


def optional(op: Op) -> list[str]:
    """Names of the optional inputs, each of which some call should leave out."""
    return [p.name for p in op.signature.inputs if p.optional and not p.variadic]


def drawable(op: Op) -> list[str]:
    """Names of the inputs and attributes, each of which some call should have.

    Attributes with a single choice are left out, and parameters that the newest version of the meaning lacks.
    """
    newest = signature_at(op, max(versions(op), default=op.version))
    fixed = set(newest.lacks)
    fixed |= {name for each in op.requirements.declared for name, items in each.choices.items() if len(items) == 1}
    return [*(p.name for p in op.signature.inputs), *(name for name in op.signature.attributes if name not in fixed)]


def known_gaps() -> list[tuple[Case, Gap]]:
    """Gaps declared by the cases of all installed packages, for the documentation."""
    load()
    return [(case, gap) for case in collected() for gap in case.gaps]
