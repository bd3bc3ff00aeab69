"""Limits of ops, derived from the results of single calls."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import onnx

from tenonnx_testing.probing.journal import Result

RIGHT, WRONG, REFUSED, CRASHED, HUNG = "right", "wrong", "refused", "crashed", "hung"

#: Names of limits other than attributes.
DTYPE, RANK, OUTPUTS = "element type", "rank", "number of outputs"

#: Common element types, which are allowed if no call with them was drawn.
COMMON = {"bool": "bool", "double": "float64", "float": "float32", "int32": "int32", "int64": "int64"}

#: Maximum share of wrong results and crashes within the limits of an op, which no limit of a target file explains. Up
#: to half of the calls may be rejected, since users notice that.
_TOLERATED = 0.2

#: Minimum number of failed calls before a value that only they have counts as the cause.
_ENOUGH = 2


@dataclass(frozen=True, slots=True)
class OpEntry:
    """Limits of an op in a range of versions, for a target file; None for no limit."""

    since: int | None
    until: int | None
    dtypes: tuple[str, ...] | None
    ranks: tuple[int, ...] | None
    constant: tuple[str, ...]
    attributes: tuple[tuple[str, tuple[Any, ...]], ...]
    outputs: int | None = None


@dataclass(frozen=True, slots=True)
class OpFailure:
    """Failed calls of an op: outcome, number of failed and all calls, dtypes that always fail, most common reason."""

    op: str
    outcome: str
    failures: int
    calls: int
    dtypes: tuple[str, ...]
    reason: str


def entries(
    results: Iterable[Result], newest: Mapping[str, int], common: Mapping[str, str] = COMMON
) -> dict[str, list[OpEntry]]:
    """Return the limits within which each op is computed correctly; ops that mostly fail are left out.

    ``common`` maps element types in ONNX's notation to dtype names; these are allowed if no call with them was drawn.
    """
    by_op: dict[str, dict[tuple[int, int], list[Result]]] = {}
    for result in _without_inexact_inputs(list(results)):
        by_op.setdefault(result["op"], {}).setdefault((result["first"], result["last"]), []).append(result)
    found = {}
    for op, by_span in sorted(by_op.items()):
        right = [each for of_span in by_span.values() for each in of_span if each["outcome"] == RIGHT]
        spans = (_entry(*span, of_span, right) for span, of_span in sorted(by_span.items()))
        entries = [entry for entry in spans if entry is not None]
        if entries:
            oldest = min(first for first, _ in by_span)
            tried = {each["dtype"] for of_span in by_span.values() for each in of_span}
            untried = _usual_types(op, common) - tried
            entries = [_with_types(each, untried) for each in entries]
            found[op] = list(_merged(entries, oldest, newest[op.partition("::")[0]]))
    return found


def _without_inexact_inputs(results: Sequence[Result]) -> list[Result]:
    """Leave out failures of calls whose later inputs have a float dtype that the consumer mostly computes wrongly.

    Limits of an op are about the dtype of the first input, and calls with the dtype as first input show the fault.
    """
    wrong = Counter(each["dtype"] for each in results if each["outcome"] == WRONG)
    right = Counter(each["dtype"] for each in results if each["outcome"] == RIGHT)
    inexact = {dtype for dtype, count in wrong.items() if "float" in dtype and count > right[dtype]}
    return [
        each
        for each in results
        if each["outcome"] == RIGHT or each["dtype"] in inexact or inexact.isdisjoint(each.get("others", ()))
    ]


def _usual_types(op: str, common: Mapping[str, str]) -> set[str]:
    """Common dtypes that the specification allows for the first input of an op."""
    domain, _, name = op.rpartition("::")
    domain = "" if domain == "ai.onnx" else domain
    if not onnx.defs.has(name, domain):
        return set()
    inputs = onnx.defs.get_schema(name, domain=domain).inputs
    types = inputs[0].types if inputs else ()
    return {dtype for written, dtype in common.items() if f"tensor({written})" in types}


def _with_types(entry: OpEntry, types: set[str]) -> OpEntry:
    """Return the entry with further dtypes allowed, if it limits them."""
    return entry if entry.dtypes is None else replace(entry, dtypes=tuple(sorted({*entry.dtypes, *types})))


def _merged(entries: Sequence[OpEntry], oldest: int, newest: int) -> Iterator[OpEntry]:
    """Merge adjacent entries with equal limits; leave out version bounds at the oldest and newest version."""
    joined: list[OpEntry] = []
    for each in entries:
        last = joined[-1] if joined else None
        if last is not None and last.until is not None and each.since == last.until + 1 and _equal_limits(last, each):
            joined[-1] = replace(last, until=each.until)
        else:
            joined.append(each)
    for each in joined:
        since = None if each.since == oldest else each.since
        yield replace(each, since=since, until=None if each.until == newest else each.until)


def _equal_limits(one: OpEntry, other: OpEntry) -> bool:
    return replace(one, since=None, until=None) == replace(other, since=None, until=None)


def _entry(first: int, last: int, results: Sequence[Result], right_ones: Sequence[Result]) -> OpEntry | None:
    """Return limits that include the correct calls and exclude the failed ones; None if there are none.

    Values that were not tried at these versions are allowed if a call at another version (``right_ones``) succeeded
    with them. Without failures there is no limit. Failures with combinations of dtypes that never succeed are ignored,
    since target files limit the dtype of the first input only. So is the failure of a dtype's only call here, if calls
    with it succeed at other versions.
    """
    fixed = [each for each in results if not each["computed"]]
    right = [each for each in fixed if each["outcome"] == RIGHT]
    constant = _needed_constants(fixed, right)
    if constant:
        right += [each for each in fixed if each.get("with_constants")]
    together = {_types(each) for each in right}
    failed = [each for each in fixed if each not in right and _types(each) in together]
    limits: dict[str, set[Any]] = {}
    while explained := _best_explanation(right, failed):
        name, wrong = explained
        limits[name] = _values(right, name) | _untried(name, [*right, *failed], right_ones)
        failed = [each for each in failed if not _values([each], name) & wrong]
    for kind in (_first_type, _types):
        for types in {kind(each) for each in failed}:
            if sum(kind(each) == types for each in failed) > sum(kind(each) == types for each in right):
                right, failed = ([each for each in results if kind(each) != types] for results in (right, failed))
    silent = sum(each["outcome"] != REFUSED for each in failed)
    if len(failed) >= len(right) or silent > max(1, _TOLERATED * (len(right) + len(failed))):
        return None
    kept, elsewhere = _values(right, DTYPE), _values(right_ones, DTYPE)
    tried = Counter(each["dtype"] for each in fixed)
    kept |= {dtype for dtype in tried if tried[dtype] < _ENOUGH and dtype in elsewhere}
    if not _values(fixed, DTYPE) <= kept:
        limits[DTYPE] = kept | (elsewhere - tried.keys())
    fed = [each for each in results if each["computed"]]
    refused = {name for each in fed if each["outcome"] != RIGHT for name in each["computed"]}
    taken = {name for each in fed if each["outcome"] == RIGHT for name in each["computed"]}
    outputs = limits.pop(OUTPUTS, None)
    rejected = {name: tuple(sorted(values, key=repr)) for name, values in sorted(limits.items())}
    return OpEntry(
        first,
        last,
        rejected.pop(DTYPE, None),
        rejected.pop(RANK, None),
        tuple(sorted((refused - taken) | constant)),
        tuple(rejected.items()),
        None if outputs is None else max(outputs),
    )


def _needed_constants(results: Sequence[Result], right: Sequence[Result]) -> set[str]:
    """Inputs that have to be constants: no call succeeds with them fed, and constants repair failed calls."""
    cured = [each for each in results if each.get("with_constants")]
    fed = {name for each in right for name in each.get("fed", ())}
    return {name for each in cured for name in each["fed"]} - fed if len(cured) >= _ENOUGH or not right else set()


def _untried(name: str, results: Sequence[Result], right_ones: Sequence[Result]) -> set[Any]:
    """Untried values to allow: those that succeed at other versions, and for ranks also those in between."""
    if name == OUTPUTS:
        return set()
    values = _values(right_ones, name)
    if name == RANK:
        values = set(range(min(values, default=0), max(values, default=-1) + 1))
    return values - _values(results, name)


def _first_type(result: Result) -> str:
    return str(result["dtype"])


def _types(result: Result) -> tuple[str, ...]:
    """Dtypes of the inputs of a call."""
    return (result["dtype"], *result.get("others", ()))


def _best_explanation(right: Sequence[Result], failed: Sequence[Result]) -> tuple[str, set[Any]] | None:
    """Return the limit (an attribute, the rank or the number of outputs) that explains most failures, with its values.

    A number of outputs explains failures only if it exceeds those that succeed.
    """
    best: tuple[int, str, set[Any]] = (_ENOUGH - 1, "", set())
    for name in [RANK, *dict.fromkeys(name for each in failed for name in each["attributes"]), OUTPUTS]:
        known = _values(right, name)
        wrong = _values(failed, name) - known
        if name == OUTPUTS:
            wrong = {number for number in wrong if number > max(known, default=0)}
        count = sum(bool(_values([each], name) & wrong) for each in failed)
        if count > best[0] and known:
            best = count, name, wrong
    return (best[1], best[2]) if best[2] else None


def _values(results: Iterable[Result], name: str) -> set[Any]:
    """Values of an attribute in some calls, or their ranks, dtypes or numbers of outputs."""
    if name == RANK:
        return {each["rank"] for each in results} - {None}
    if name == OUTPUTS:
        return {each["outputs"] for each in results if each.get("outputs")}
    if name == DTYPE:
        return {each["dtype"] for each in results} - {""}
    return {each["attributes"][name] for each in results if name in each["attributes"]}


def failures(results: Iterable[Result]) -> list[OpFailure]:
    """Summarize the failed calls of each op by outcome."""
    by_op: dict[str, list[Result]] = {}
    for result in results:
        by_op.setdefault(result["op"], []).append(result)
    found = []
    for op, entries in sorted(by_op.items()):
        right = {each["dtype"] for each in entries if each["outcome"] == RIGHT or each.get("with_constants")}
        for outcome in (WRONG, REFUSED, CRASHED, HUNG):
            failed = [each for each in entries if each["outcome"] == outcome]
            if failed:
                never = tuple(sorted({each["dtype"] for each in failed if each["dtype"]} - right))
                reason = Counter(each["reason"] for each in failed).most_common(1)[0][0]
                found.append(OpFailure(op, outcome, len(failed), len(entries), never, reason))
    return found
