"""Graphs and results in notebooks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import singledispatch
from typing import Any

from tenonnx import ConversionPlan, Graph, Report, Verification
from tenonnx.tools import Change
from tenonnx_cli import drawing
from tenonnx_cli.html import part, table

#: Maximum number of facts, and of list items.
LISTED = 50


@singledispatch
def to_html(thing: Any) -> str:
    """HTML fragment for ``thing``: its line, then its data as tables."""
    facts, tables = [], []
    for name, value in thing.to_dict().items():
        title = name.replace("_", " ")
        rows = value if isinstance(value, list) else []
        if rows and all(isinstance(row, dict) for row in rows):
            columns = list(dict.fromkeys(key for row in rows for key in row))
            tables.append(table(columns, [[_cell(row.get(key)) for key in columns] for row in rows]))
        elif isinstance(value, dict):
            facts += [(f"{title}: {key}", _cell(inner)) for key, inner in value.items()]
        elif value not in (None, "", [], ()):
            facts.append((title, _cell(value)))
    return part(str(thing), table(("", ""), facts[:LISTED]), *tables)


def _cell(value: Any) -> str:
    """Short text of a result's data."""
    if isinstance(value, bool) or value is None:
        return {True: "yes", False: "no", None: ""}[value]
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, dict):
        return ", ".join(f"{key}={_cell(inner)}" for key, inner in value.items())
    if isinstance(value, list | tuple):
        more = f" and {len(value) - LISTED:,} more" if len(value) > LISTED else ""
        return ", ".join(map(_cell, value[:LISTED])) + more
    return f"{value:,}" if isinstance(value, int) else str(value)


to_html.register(Graph, drawing.to_html)


@to_html.register
def to_html_register(plan: ConversionPlan) -> str:
    return part(str(plan), _by_op(plan.changes))


@to_html.register
def to_html_register_2(report: Report) -> str:
    opsets = ", ".join(f"{domain} {version}" for domain, version in report.opsets.items())
    notes = [f"left out, as IR {report.ir_version} does not support it: {what}" for what in report.notes_left_out]
    checked = "" if report.verification is None else to_html(report.verification)
    head = f"{opsets}; IR {report.ir_version}"
    return part(head, _by_op(report.changes), checked, notes=notes if checked else [*notes, *report.notes])


@to_html.register
def to_html_register_3(verification: Verification) -> str:
    rows = [
        (o.name, o.location, f"{o.difference.absolute:.3g}", f"{o.difference.relative:.3g}", o.grade)
        if o.equal
        else (o.name, o.location, "", "", f"different: {o.difference.reason}")
        for o in verification.outputs
    ]
    rows += [(name, "", "", "", f"not verified: {why}") for name, why in verification.unverified.items()]
    found = table(("output", "backend", "absolute", "relative", "result"), rows)
    rows += [(name, "", "", "", f"never ran: {why}") for name, why in verification.never_ran.items()]
    diverging = verification.first_divergence
    first = [f"the first node that diverges: {diverging}"] if diverging else []
    notes = [*verification.problems, *first, *map(str, verification.default_session), *verification.notes]
    return part(str(verification), found, notes=notes)


def _by_op(changes: Sequence[Change]) -> str:
    """Outcomes of nodes as a table, refused ones first, equal ones in one row."""
    counts = Counter((c.op, c.action, ", ".join(c.into), c.reason) for c in changes)
    ordered = sorted(counts.items(), key=lambda item: (item[0][1] != "refused", item[0][1] == "kept", -item[1]))
    rows = [(count, op.removeprefix("ai.onnx::"), action, into, why) for (op, action, into, why), count in ordered]
    return table(("nodes", "op", "action", "into", "reason"), rows)
