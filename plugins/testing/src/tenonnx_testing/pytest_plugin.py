"""The pytest plugin: options of the conformance kit.

Every pytest of an environment loads it, so it imports nothing.
"""

from __future__ import annotations

from typing import Any

#: Calls drawn for each check of each case.
EXAMPLES = 12


def pytest_addoption(parser: Any) -> None:
    parser.getgroup("tenonnx").addoption(
        "--tenonnx-examples",
        dest="tenonnx_examples",
        type=int,
        default=EXAMPLES,
        metavar="N",
        help=f"calls that the conformance kit draws for each check of each case (default {EXAMPLES})",
    )


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Say how much was compared, where the kit was used at all."""
    import sys

    kit = sys.modules.get("tenonnx_testing.kit")
    counts = kit.comparisons() if kit is not None else {}
    if counts:
        shown = ", ".join(f"{count} {name}" for name, count in counts.items())
        terminalreporter.write_line(f"tenonnx conformance: {shown}")
        for title, names in kit.never_drawn().items() if kit is not None else ():
            terminalreporter.write_line(
                f"tenonnx conformance: no case of {title} draws {', '.join(names)}", yellow=True
            )
