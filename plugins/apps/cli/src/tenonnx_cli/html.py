"""Tables of results for notebooks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import Any

from tenonnx_cli.printable import printable_lines

#: Maximum number of rows in a table.
SHOWN = 100


def table(columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """An HTML table; rows beyond ``SHOWN`` are counted. Cells are escaped."""
    all_rows = list(rows)
    lines = [_row("th", columns), *(_row("td", row) for row in all_rows[:SHOWN])]
    more = len(all_rows) - SHOWN
    rest = f"<p>and {more:,} more</p>" if more > 0 else ""
    return f"<table>{''.join(lines)}</table>{rest}" if all_rows else ""


def part(head: str, *bodies: str, notes: Iterable[str] = ()) -> str:
    """An escaped heading, followed by HTML bodies and escaped notes."""
    below = "".join(f"<li>{shown(note)}</li>" for note in notes)
    return f"<div><p><b>{shown(head)}</b></p>{''.join(bodies)}{f'<ul>{below}</ul>' if below else ''}</div>"


def shown(text: Any) -> str:
    """Text escaped for a page."""
    return escape(printable_lines(str(text)))


def _row(cell: str, items: Sequence[Any]) -> str:
    cells = (f'<{cell} style="text-align:left;padding-right:1em">{shown(item)}</{cell}>' for item in items)
    return f"<tr>{''.join(cells)}</tr>"
