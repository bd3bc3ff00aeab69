"""Pytest plugin: options of the conformance kit, its summary, and the certificate.

Pytest loads it in every environment with the kit, so imports are lazy.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tenonnx_testing.cases import EXAMPLES

#: Comparisons of the worker processes of a distributed run.
_PARTS = pytest.StashKey[list[dict[str, Any]]]()


def pytest_addoption(parser: Any) -> None:
    group = parser.getgroup("tenonnx")
    group.addoption(
        "--tenonnx-examples",
        dest="tenonnx_examples",
        type=int,
        default=EXAMPLES,
        metavar="N",
        help=f"calls that the conformance kit draws for each check of each case (default {EXAMPLES})",
    )
    group.addoption(
        "--tenonnx-seed",
        dest="tenonnx_seed",
        type=int,
        default=0,
        metavar="N",
        help="draw other calls than those of the default seed 0",
    )
    group.addoption(
        "--tenonnx-table",
        dest="tenonnx_table",
        action="store_true",
        help="end with a line for each op that the conformance kit checked",
    )
    group.addoption(
        "--tenonnx-report",
        dest="tenonnx_report",
        metavar="FILE",
        help="write what the conformance kit compared as JSON, and as Markdown beside it",
    )


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "tenonnx_always(*ids): parameters that are run whatever is selected")


@pytest.hookimpl(wrapper=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> Iterator[None]:
    """Keep tests that report failed imports in every selection, since the tests of the module are missing from it."""
    suites = {(item.parent, mark.args) for item in items for mark in item.iter_markers("tenonnx_always") if mark.args}
    yield
    for module, ids in suites:
        missing = set(ids) - {_id(item) for item in items if item.parent is module}
        if missing and isinstance(module, pytest.Module):
            items += [item for item in module.collect() if isinstance(item, pytest.Item) and _id(item) in missing]


def _id(item: pytest.Item) -> str:
    return item.name.partition("[")[2].removesuffix("]")


def _seen() -> dict[str, Any] | None:
    """Comparisons of this process; None if it did not use the kit."""
    if "tenonnx_testing.kit" not in sys.modules:
        return None
    from tenonnx_testing.report import seen_here

    return seen_here()


@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Send the comparisons of a worker process to the main process."""
    output = getattr(session.config, "workeroutput", None)
    if output is not None and (seen := _seen()) is not None:
        output["tenonnx"] = seen


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any, error: object) -> None:
    """Receive the comparisons of a worker process."""
    seen = getattr(node, "workeroutput", {}).get("tenonnx")
    if seen is not None:
        node.config.stash.setdefault(_PARTS, []).append(seen)


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """Print the number of comparisons and what was never drawn, and write the certificate."""
    here = None if config.stash.get(_PARTS, []) else _seen()
    parts = [*config.stash.get(_PARTS, []), *([here] if here is not None else [])]
    if not parts:
        return
    from tenonnx_testing import report

    seen = report.merged(parts)
    counts = ", ".join(f"{count} {name}" for name, count in report.comparisons(seen).items())
    if counts:
        terminalreporter.write_line(f"tenonnx conformance: {counts}")
    for said, missing in (("draws", report.never_drawn(seen)), ("leaves out", report.never_left_out(seen))):
        for title, names in missing.items():
            line = f"tenonnx conformance: no case of {title} {said} {', '.join(names)}"
            terminalreporter.write_line(line, yellow=True)
    if not config.getoption("keyword", "") and (names := report.without_reference(seen)):
        line = f"tenonnx conformance: no reference, compared with their own bodies only: {', '.join(names)}"
        terminalreporter.write_line(f"{line} (give their cases a reference=)", yellow=True)
    if config.getoption("tenonnx_table"):
        for line in report.table(seen):
            terminalreporter.write_line(line)
    path = config.getoption("tenonnx_report")
    if path:
        certificate = report.certificate(seen)
        report.write(certificate, Path(path))
        terminalreporter.write_line(f"tenonnx conformance: {path} says so, for a README: {report.badge(certificate)}")
