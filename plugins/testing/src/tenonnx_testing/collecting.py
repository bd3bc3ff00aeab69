"""Test collection: cases of installed packages, and checks of whole ops and packages."""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import pytest

from tenonnx.extend import InvalidCall, Op, Registry
from tenonnx.extend.testing import INTERNAL_DOMAIN, Plugin, plugins
from tenonnx_testing import coverage, declared, schemas, violations
from tenonnx_testing.cases import Call, Case, collected, incomparable_ops, load, unwritten_ops
from tenonnx_testing.checks import CHECKS
from tenonnx_testing.kit import check_case
from tenonnx_testing.run import Failure
from tenonnx_testing.signatures import dtype_problems, signature_problems, uncovered, versions_without_meaning


@dataclass(frozen=True, slots=True)
class Item:
    """One parametrized test; ``run`` takes the number of examples. With ``always``, selections by ``-k`` keep it."""

    label: str
    run: Callable[[int], None]
    always: bool = False


def find_items(wanted: str, registry: Registry) -> Iterator[Item]:
    """Yield the tests of a domain, or of one distribution."""
    serving = [p for p in plugins("tenonnx.ops") if wanted in (p.domain, p.distribution)]
    distributions = {wanted, *(p.distribution for p in serving)}
    declaring = [p for p in plugins("tenonnx.conformance") if p.distribution in distributions]
    if not serving and not declaring:
        known = sorted({name for p in plugins("tenonnx.ops") for name in (p.domain, p.distribution)})
        raise InvalidCall(f'"{wanted}" is neither an installed package nor a domain of one', available=", ".join(known))
    modules = load(declaring)
    for name, error in modules.items():
        if error is not None:
            yield Item(f"{name}-import", partial(_fail_import, name, error), always=True)
    yield from _items_of_imports(serving, registry)
    for distribution in sorted(distributions):
        yield from _items_of_entries(distribution, registry)
    yield from _items_of_others(modules, registry)
    domains = {p.domain for p in serving}
    yield from _items_of_ops(_cases_of(modules, {wanted} & domains), domains, distributions, registry)
    for plugin in serving:
        label = f"{plugin.distribution}-{plugin.domain}-coverage"
        yield Item(label, partial(_check_coverage, registry, plugin.domain, plugin.distribution))


def _items_of_imports(serving: Iterable[Plugin], registry: Registry) -> Iterator[Item]:
    """Yield a failing test for each plugin that cannot be imported."""
    for plugin in serving:
        registry.load(plugin.domain)
        if failure := registry.failures.get(plugin):
            label = f"{plugin.distribution}-{plugin.domain}-import"
            yield Item(label, partial(_fail_import, plugin.value, failure), always=True)


def _items_of_entries(distribution: str, registry: Registry) -> Iterator[Item]:
    """Yield a failing test for each domain of a distribution's ops that lacks an entry point."""
    entries = {p.domain for p in plugins("tenonnx.ops") if p.distribution == distribution} | {INTERNAL_DOMAIN}
    own = {op.domain for op in registry.ops() if _distribution(registry, op) == distribution}
    for domain in sorted(own - entries):
        yield Item(f"{distribution}-{domain}-served", partial(_miss_entry, distribution, domain))


def _items_of_others(modules: Container[str], registry: Registry) -> Iterator[Item]:
    """Yield a failing test for each case whose op is not registered."""
    for case in collected():
        if case.module in modules and case.op not in registry.meanings(case.op.domain, case.op.name):
            yield Item(f"{case.title}-registered", partial(_miss_registration, case))


def _cases_of(modules: Container[str], domains: Collection[str]) -> dict[Op, list[Case]]:
    """Cases of some modules by op, in these domains or, if empty, in all."""
    result: dict[Op, list[Case]] = {}
    for case in collected():
        if case.module in modules and (not domains or case.op.domain in domains):
            result.setdefault(case.op, []).append(case)
    return result


def _items_of_ops(
    found: Mapping[Op, Sequence[Case]], domains: set[str], distributions: Container[str], registry: Registry
) -> Iterator[Item]:
    """Yield the tests of ops: first those of the cases, then those of the whole op, which reuse the drawn calls."""
    ops = [op for domain in sorted(domains | {op.domain for op in found}) for op in registry.ops(domain)]
    own = {op: None for op in ops if _distribution(registry, op) in distributions}
    for op in {**dict.fromkeys(found), **own}:
        yield from items_of_cases(found.get(op, ()))
        if op in own:
            yield from items_of_op(op, registry)


def _fail_import(name: str, error: Exception, examples: int) -> None:
    raise Failure(f"{name} cannot be imported: {error}") from error


def _distribution(registry: Registry, op: Op) -> str:
    return registry.source(op).split(" ")[0]


def items_of_cases(found: Iterable[Case]) -> Iterator[Item]:
    """Yield a test for each check that applies to a case."""
    for case in found:
        for check in CHECKS.values():
            if check.applies(case):
                yield Item(f"{case.title}-{check.name}", partial(check_case, case, check.name))


# ----- ops and packages ---------------------------------------------------------------------------------------------


def items_of_op(op: Op, registry: Registry) -> Iterator[Item]:
    title = Case(op, lambda draw: Call((), {})).title
    if schemas.history(op.domain, op.name):
        yield Item(f"{title}-signature", partial(_check_signature, op, registry))
    if op.signature.reads_graph or op in incomparable_ops():
        return  # ops with subgraphs that capture values: no call can be drawn without the outer graph
    if not any(collected(op)):
        yield Item(f"{title}-cases", partial(_miss_cases, op))
        return
    if schemas.history(op.domain, op.name):
        yield Item(f"{title}-versions", partial(coverage.check_versions, op))
        if coverage.has_several_outputs(op):
            yield Item(f"{title}-outputs", partial(coverage.check_outputs, op))
    yield Item(f"{title}-declared", partial(declared.check_declared, op))
    if op.requirements.declared:
        yield Item(f"{title}-requirements", partial(violations.check_requirements, op))


def _check_signature(op: Op, registry: Registry, examples: int) -> None:
    problems = signature_problems(op) + dtype_problems(op, registry)
    problems += [f"version {v} has a meaning here or there alone" for v in versions_without_meaning(registry, op)]
    gaps = [gap for case in collected(op) for gap in case.gaps_of("signature")]
    if problems and gaps:
        pytest.xfail("; ".join(gap.reason for gap in gaps))
    if gaps:
        raise Failure(f"{op.title}: the gap of signature is stale, nothing differs any more: {gaps[0].reason}")
    if problems:
        raise Failure(f"{op.title} is not as its schemas have it:\n  " + "\n  ".join(problems))


def _miss_cases(op: Op, examples: int) -> None:
    raise Failure(f"{op.title} has no conformance case: write @cases({op.__name__}) in a module of the package's cases")


def _miss_entry(distribution: str, domain: str, examples: int) -> None:
    raise Failure(
        f'{distribution} registers ops of domain "{domain}", and no file with them finds it: its entry points of '
        f'tenonnx.ops lacks "{domain}"'
    )


def _miss_registration(case: Case, examples: int) -> None:
    raise Failure(f"{case.op.title} has cases in {case.module} and is not registered: add it in register_ops")


def _check_coverage(registry: Registry, domain: str, distribution: str, examples: int) -> None:
    declared = unwritten_ops(domain)
    missing = [entry for entry in uncovered(registry, domain, distribution) if entry.split("@")[0] not in declared]
    stale = [name for name in declared if registry.meanings(domain, name)]
    if stale:
        raise Failure(f"the gap is stale: {', '.join(stale)} of {domain} is declared unwritten, and there it is")
    if missing:
        shown = ", ".join(missing[:50]) + " ..." * (len(missing) > 50)
        raise Failure(f"{distribution} gives no meaning to {len(missing)} schemas of {domain}: {shown}")
