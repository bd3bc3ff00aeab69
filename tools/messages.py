"""Write ``docs/reference/messages.md``: the headline of every error of our packages. ``--check`` only compares."""

from __future__ import annotations

import sys
from pathlib import Path

from documenting.headlines import Headlines, packages

ROOT = Path(__file__).parent.parent
TABLE = ROOT / "docs" / "reference" / "messages.md"

INTRODUCTION = """# Messages of errors

Generated from the sources by `tools/messages.py`. Every error of the packages has a headline that says what failed, and
where it helps what was *given*, what is *available* and one thing to *do*. `{words in braces}` stand for names and
numbers of the case. Errors of Python, such as `KeyError`, are not listed.
"""


def page() -> str:
    """The page, grouped by package and sorted by headline."""
    found = {package: sorted(rows) for package, rows in Headlines(packages(ROOT)).found.items() if rows}
    count = sum(map(len, found.values()))
    sections = [INTRODUCTION, f"{count:,} messages of {len(found)} packages.\n"]
    for package, rows in sorted(found.items()):
        lines = [f"| {_cell(row.headline)} | `{row.kind}` | `{row.module}` |" for row in rows]
        head = ["| headline | error | module |", "| --- | --- | --- |"]
        sections.append("\n".join([f"## {package}\n", *head, *lines, ""]))
    return "\n".join(sections)


def _cell(text: str) -> str:
    """A text as inline code in a table."""
    text = text.replace("\n", "\\n").replace("|", "\\|")
    return f"`` {text} ``" if "`" in text else f"`{text}`"


def main() -> None:
    text = page()
    if "--check" not in sys.argv[1:]:
        TABLE.write_text(text, "utf-8", newline="\n")
    elif not TABLE.exists() or TABLE.read_text("utf-8") != text:
        sys.exit(f"{TABLE.relative_to(ROOT)} is out of date; run tools/messages.py")


if __name__ == "__main__":
    main()
