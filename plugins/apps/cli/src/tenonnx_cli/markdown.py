"""Comparisons of models as Markdown, for comments on pull requests and summaries of CI."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tenonnx_cli.compare_models import Comparison
from tenonnx_cli.output import plural
from tenonnx_cli.printable import printable

#: Maximum number of rows for a kind of difference.
ROWS = 20


def markdown_of(found: Comparison, first: str, second: str) -> str:
    """A heading with the verdict, a table of outputs, and one for each kind of structural difference."""
    lines = [f"### {_cell(second)}: {_cell(found.verification.verdict)}", ""]
    outputs = [
        (each.name, each.backend, f"{each.difference.absolute:.3g}", f"{each.difference.relative:.3g}", each.grade)
        for each in found.verification.outputs
    ]
    lines += table(("output", "backend", "absolute", "relative", "grade"), outputs)
    lines += [f"- {_cell(problem)}" for problem in found.verification.problems]
    for kind, rows in found.structure.items():
        lines += ["", f"{kind.replace('_', ' ').capitalize()}: {plural(len(rows), 'difference')}", ""]
        lines += table(("", first, second), [(row["name"], row["first"], row["second"]) for row in rows[:ROWS]])
        if len(rows) > ROWS:
            lines.append(f"\nand {len(rows) - ROWS:,} more")
    if not found.structure:
        lines += ["", "Structure: equal"]
    return "\n".join(lines)


def table(header: Sequence[str], rows: Sequence[Sequence[Any]]) -> list[str]:
    """Lines of a table, none without rows."""
    if not rows:
        return []
    return [_row(header), _row(["---"] * len(header)), *(_row(row) for row in rows)]


def _row(cells: Sequence[Any]) -> str:
    return f"| {' | '.join(map(_cell, cells))} |"


def _cell(value: Any) -> str:
    """Text of a cell, escaped so that names cannot end it or begin markup."""
    text = f"{value:.6g}" if isinstance(value, float) else str(value)
    text = printable(text).replace("\\", "\\\\")
    for mark in "|<>`*_[]":
        text = text.replace(mark, f"\\{mark}")
    return text
