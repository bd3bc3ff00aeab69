"""The test function of a package: every check of every case, and what concerns a package as a whole."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from types import ModuleType
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, Verbosity, given, settings
from hypothesis import strategies as st

from tenonnx.errors import InvalidCall, PluginError
from tenonnx.op.op import Op
from tenonnx.registry.discovery import Plugin, plugins
from tenonnx.registry.registry import Registry, default_registry
from tenonnx.testing.cases import Call, Case, Gap, collected
from tenonnx.testing.checks import CHECKS, Check
from tenonnx.testing.pytest_plugin import EXAMPLES
from tenonnx.testing.repro import one_line
from tenonnx.testing.run import Failure, blaming, completed, evaluate
from tenonnx.testing.signatures import signature_problems, uncovered, versions_without_meaning


@dataclass(frozen=True, slots=True)
class Item:
    """One parametrised test: its id, and what it runs, given the number of examples."""

    label: str
    run: Callable[[int], None]

    __test__ = False


def conformance(domain_or_distribution: str, *, registry: Registry | None = None) -> Callable[..., None]:
    """A pytest function with all checks of all cases of a domain, or of what one distribution has.

    A whole test file is ``test = conformance("my.domain")``. Cases are found through the entry-point group
    ``tenonnx.conformance``. Raises ``InvalidCall`` where no installed package has that name or serves that domain.
    """
    items = list(find_items(domain_or_distribution, registry or default_registry()))

    @pytest.mark.parametrize("item", items, ids=[item.label for item in items])
    def test(item: Item, request: pytest.FixtureRequest) -> None:
        item.run(request.config.getoption("tenonnx_examples", EXAMPLES))

    return test


# ----- finding ------------------------------------------------------------------------------------------------------


def find_items(wanted: str, registry: Registry) -> Iterator[Item]:
    """Every test of a domain or distribution."""
    serving = [p for p in plugins("tenonnx.ops") if wanted in (p.domain, p.distribution)]
    distributions = {p.distribution for p in serving}
    declaring = [p for p in plugins("tenonnx.conformance") if p.distribution in distributions | {wanted}]
    if not serving and not declaring:
        known = sorted({name for p in plugins("tenonnx.ops") for name in (p.domain, p.distribution)})
        raise InvalidCall(
            f'no installed package is "{wanted}" or serves a domain "{wanted}"', available=", ".join(known)
        )
    modules = set()
    for plugin in declaring:
        for name, failure in _import_cases(plugin):
            modules.add(name)
            if failure is not None:
                yield Item(f"{name}-import", partial(_raise, failure))
    domains = sorted({p.domain for p in serving if wanted in (p.domain, p.distribution)})
    for plugin in serving:
        registry.load(plugin.domain)
        if plugin in registry.failures:
            yield Item(f"{plugin.distribution}-ops", partial(_raise, registry.failures[plugin]))
    yield from items_of_cases([c for c in collected() if c.module in modules and c.op.domain in domains])
    for domain in domains:
        for distribution in sorted(distributions):
            yield Item(f"{distribution}-{domain}-coverage", partial(_check_coverage, registry, domain, distribution))
        for op in registry.ops(domain):
            if registry.source(op).split(" ")[0] in distributions:
                yield from _items_of_op(op, registry)


def _import_cases(plugin: Plugin) -> Iterator[tuple[str, Exception | None]]:
    """The modules that a plugin names, each with the reason why it could not be imported."""
    try:
        root = plugin.load()
    except PluginError as error:
        yield plugin.value, error
        return
    if not isinstance(root, ModuleType):
        yield plugin.value, PluginError(f'plugin "{plugin.name}" of {plugin.source} must name a module or package')
        return
    yield root.__name__, None
    for found in pkgutil.walk_packages(getattr(root, "__path__", ()), f"{root.__name__}.", onerror=lambda name: None):
        try:
            importlib.import_module(found.name)
        except Exception as error:
            yield found.name, error
        else:
            yield found.name, None


def _raise(error: Exception, examples: int) -> None:
    raise error


def items_of_cases(found: Sequence[Case]) -> Iterator[Item]:
    """A test for every check that applies to a case."""
    for case in found:
        for check in CHECKS.values():
            if check.applies(case):
                yield Item(f"{case.title}-{check.name}", partial(check_case, case, check.name))


def _items_of_op(op: Op, registry: Registry) -> Iterator[Item]:
    title = Case(op, lambda draw: Call((), {})).title
    yield Item(f"{title}-signature", partial(_check_signature, op, registry))
    if not any(collected(op)):
        yield Item(f"{title}-cases", partial(_miss_cases, op))


# ----- running ------------------------------------------------------------------------------------------------------


def check_case(case: Case, name: str, examples: int = EXAMPLES) -> None:
    """Run one check on drawn calls of a case.

    Raises ``Failure`` where it does not hold or a gap is stale, and the outcomes of pytest for known gaps (xfail) and
    for calls that could not be compared at all (skip).
    """
    check = CHECKS[name]
    gaps = {gap: _Seen() for gap in case.gaps_of(name)}
    count = 0

    @settings(
        max_examples=examples, derandomize=True, database=None, deadline=None, verbosity=Verbosity.quiet,
        suppress_health_check=list(HealthCheck), report_multiple_bugs=False, phases=[Phase.generate, Phase.shrink],
    )  # fmt: skip
    @given(st.composite(case.function)(), st.integers(0, check.stride - 1))
    def run(drawn: Call, offset: int) -> None:
        nonlocal count
        count += _check_call(case, check, drawn, offset, gaps)

    run()
    case.compared[name] = case.compared.get(name, 0) + count
    _conclude(case, check, gaps, count)


@dataclass(slots=True)
class _Seen:
    """How often a gap was met, and how often the check failed there."""

    met: int = 0
    failed: int = 0


def _check_call(case: Case, check: Check, drawn: Call, offset: int, gaps: dict[Gap, _Seen]) -> int:
    compared = 0
    try:
        with blaming(f"{case.op.title} on the drawn inputs"):
            whole = completed(case.op, drawn)
            expected = evaluate(case.op, whole)
        for version in check.versions(case)[offset :: check.stride]:
            there = replace(whole, version=version)
            gap = next((gap for gap in gaps if gap.covers(there)), None)
            try:
                compared += check.run(case, there, expected)
            except Failure:
                if gap is None:
                    raise
                gaps[gap].failed += 1
            if gap is not None:
                gaps[gap].met += 1
    except Failure as failure:
        failure.add_note(f"reproduce: {one_line(case.op, drawn)}")
        raise
    return compared


def _conclude(case: Case, check: Check, gaps: dict[Gap, _Seen], count: int) -> None:
    for gap, seen in gaps.items():
        if seen.met and not seen.failed:
            raise Failure(f"{case.op.title}: the gap of {check.name} is stale, nothing fails any more: {gap.reason}")
    known = [gap for gap, seen in gaps.items() if seen.failed and gap.when is None]
    if known:
        pytest.xfail("; ".join(gap.reason for gap in known))
    if check.name == "oracle" and not count:
        raise Failure(
            f"{case.op.title} is a primitive that nothing else computes: {case.refusals or 'no schema and no oracle'}"
        )
    if not count:
        pytest.skip(f"nothing to compare with: {case.refusals.get(check.name, 'no version takes these element types')}")


def _check_signature(op: Op, registry: Registry, examples: int) -> None:
    problems = signature_problems(op)
    problems += [
        f"version {version} is wrongly covered or uncovered" for version in versions_without_meaning(registry, op)
    ]
    gaps = [gap for case in collected(op) for gap in case.gaps_of("signature")]
    if problems and gaps:
        pytest.xfail("; ".join(gap.reason for gap in gaps))
    if gaps:
        raise Failure(f"{op.title}: the gap of signature is stale: {gaps[0].reason}")
    if problems:
        raise Failure(f"{op.title} is not as the onnx package has it:\n  " + "\n  ".join(problems))


def _check_coverage(registry: Registry, domain: str, distribution: str, examples: int) -> None:
    missing = uncovered(registry, domain, distribution)
    if missing:
        raise Failure(f"{distribution} gives no meaning to {len(missing)} versions of {domain}: {', '.join(missing)}")


def _miss_cases(op: Op, examples: int) -> None:
    raise Failure(f"{op.title} has no conformance case")


def known_gaps() -> list[tuple[Case, Gap]]:
    """Every gap that the imported cases declare, for the docs."""
    return [(case, gap) for case in collected() for gap in case.gaps]


def cases_of(*ops: Op) -> list[Any]:
    """The cases of these ops."""
    return [case for op in ops for case in collected(op)]
