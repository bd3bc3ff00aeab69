"""Report of an export, as an HTML page, and as Markdown for a pull request."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from html import escape
from typing import Any

#: A block of the report: its kind (heading, text, list, table with headers, or command) and contents.
_Block = tuple[str, Any]

#: Maximum number of rows in a table.
_MOST = 100


def to_markdown(title: str, found: Mapping[str, Any]) -> str:
    """The report of an export of the model ``title`` with this result, as Markdown."""
    return "\n\n".join(_as_markdown(kind, contents) for kind, contents in _blocks(title, found)) + "\n"


def to_html(title: str, found: Mapping[str, Any]) -> str:
    """The report of an export of the model ``title`` with this result, as an HTML page."""
    body = "\n".join(_as_html(kind, contents) for kind, contents in _blocks(title, found))
    style = (
        ":root{color-scheme:light dark}body{font:15px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;"
        "padding:0 1rem;background:light-dark(#fff,#15181e);color:light-dark(#1c2330,#e8ebf0)}"
        "table{border-collapse:collapse;display:block;overflow-x:auto}"
        "th,td{text-align:left;padding:4px 14px 4px 0;border-bottom:1px solid #8886}"
        "pre{white-space:pre-wrap;overflow-wrap:anywhere}"
    )
    head = f'<meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>{escape(title)}</title>'
    return (
        f'<!DOCTYPE html>\n<html lang="en"><head>{head}<style>{style}</style></head>\n<body>\n{body}\n</body></html>\n'
    )


#: For each suffix the function that renders a report, and its media type.
REPORTS: Mapping[str, tuple[Callable[[str, Mapping[str, Any]], str], str]] = {
    "html": (to_html, "text/html; charset=utf-8"),
    "md": (to_markdown, "text/markdown; charset=utf-8"),
}


def _blocks(title: str, found: Mapping[str, Any]) -> Iterator[_Block]:
    yield "heading", f"Export of {title}"
    if "refused" in found:
        yield from _refusal(found["refused"])
    else:
        yield from _outcome(found)
    yield "heading", "The same on the command line"
    yield "command", found["command"]


def _refusal(refused: Mapping[str, Any]) -> Iterator[_Block]:
    yield "text", "Not possible ✗"
    rows = [
        (row["op"], row["reason"], row["do"] or "", ", ".join(name for name, _ in row["nodes"]))
        for row in refused["blockers"]
    ]
    if rows:
        yield "table", (("Op", "Why", "What to do", "Nodes"), rows)
    else:
        yield "text", refused["error"]["what"]


def _outcome(found: Mapping[str, Any]) -> Iterator[_Block]:
    verdict = {True: "Passed ✓", False: "Failed ✗"}.get(found["passed"], "Not compared")
    yield "text", f"{verdict}: {found['verdict']}" if found.get("verdict") else verdict
    facts = [f"Opsets: {', '.join(f'{domain} {version}' for domain, version in found['opsets'].items())}"]
    facts.append(f"IR version: {found['ir_version']}")
    if "bytes" in found:
        before, after = found["bytes"]
        facts.append(f"Size: {f'{before:,} → ' if before is not None else ''}{after:,} bytes")
    facts.append(f"Nodes: {found['nodes']['kept']:,} kept, {found['nodes']['rewritten']:,} rewritten")
    yield "list", facts
    outputs = (found.get("verification") or {}).get("outputs") or []
    if outputs:
        rows = [
            (
                row["name"],
                row["backend"],
                _number(row["absolute"]),
                _number(row["relative"]),
                "✓" if row["equal"] else f"✗ {row.get('reason') or 'differs'}",
            )
            for row in outputs
        ]
        yield "heading", "Largest difference of each output"
        yield "table", (("Output", "Backend", "Absolute", "Relative", "Result"), rows)
    groups = found["nodes"]["groups"]
    if groups:
        changed = [
            (
                row["op"].removeprefix("ai.onnx::"),
                row["action"] + (f" into {row['into']}" if row["into"] else ""),
                f"{row['count']:,}",
                row["reason"] or "",
            )
            for row in groups
        ]
        yield "heading", "What became of the nodes"
        yield "table", (("Op", "What became of it", "Nodes", "Why"), changed)
    if found["notes"]:
        yield "heading", "Notes"
        yield "list", found["notes"]


def _number(number: float | None) -> str:
    return "" if number is None else f"{number:.3g}"


def _as_markdown(kind: str, contents: Any) -> str:
    if kind == "heading":
        return f"## {_plain(contents)}"
    if kind == "text":
        return _plain(contents)
    if kind == "list":
        return "\n".join(f"- {_plain(each)}" for each in contents)
    if kind == "command":
        fence = "`" * max(3, 1 + max(map(len, re.findall("`+", contents)), default=0))
        return f"{fence}console\n$ {contents}\n{fence}"
    headers, rows = contents
    lines = [headers, tuple("---" for _ in headers), *(tuple(map(_plain, row)) for row in rows[:_MOST])]
    return "\n".join([f"| {' | '.join(line)} |" for line in lines] + _more(rows))


def _plain(text: str) -> str:
    """A text of a model, escaped for Markdown."""
    return re.sub(r"([\\`*_\[\]<>|#~&@])", r"\\\1", " ".join(text.split()))


def _as_html(kind: str, contents: Any) -> str:
    if kind == "heading":
        return f"<h2>{escape(contents)}</h2>"
    if kind == "text":
        return f"<p>{escape(contents)}</p>"
    if kind == "list":
        return f"<ul>{''.join(f'<li>{escape(each)}</li>' for each in contents)}</ul>"
    if kind == "command":
        return f"<pre>{escape(contents)}</pre>"
    headers, rows = contents
    body = "".join(f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>" for row in rows[:_MOST])
    more = "".join(f"<p>{each}</p>" for each in _more(rows))
    return f"<table><tr>{''.join(f'<th>{escape(each)}</th>' for each in headers)}</tr>{body}</table>{more}"


def _more(rows: Sequence[Any]) -> list[str]:
    return [f"\nand {len(rows) - _MOST:,} more"] if len(rows) > _MOST else []
