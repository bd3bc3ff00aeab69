"""What graphs and results show of themselves in notebooks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import singledispatch
from typing import Any

from tenonnx import ConversionPlan, Graph, Report, Verification
from tenonnx.tools import Change
from tenonnx_cli import drawing
from tenonnx_cli.html import part, table


@singledispatch
def to_html(thing: Any) -> str:
    """A part of a page that shows ``thing``."""
    raise NotImplementedError(type(thing).__name__)


to_html.register(Graph, drawing.to_html)


@to_html.register
def _(plan: ConversionPlan) -> str:
    return part(str(plan).partition("\n")[0], _by_op(plan.changes))


@to_html.register
def _(report: Report) -> str:
    opsets = ", ".join(f"{domain} {version}" for domain, version in report.opsets.items())
    notes = [f"left out, as IR {report.ir_version} does not support it: {what}" for what in report.notes_left_out]
    checked = "" if report.verification is None else to_html(report.verification)
    head = f"{opsets}; IR {report.ir_version}"
    return part(head, _by_op(report.changes), checked, notes=notes if checked else [*notes, *report.notes])


@to_html.register
def _(verification: Verification) -> str:
    rows = [
        (o.name, o.backend, f"{o.difference.absolute:.3g}", f"{o.difference.relative:.3g}", o.grade)
        if o.equal
        else (o.name, o.backend, "", "", f"different: {o.difference.reason}")
        for o in verification.outputs
    ]
    rows += [(name, "", "", "", f"not verified: {why}") for name, why in verification.unverified.items()]
    found = table(("output", "backend", "absolute", "relative", "result"), rows)
    diverging = verification.first_divergence
    first = [f"the first node that diverges: {diverging}"] if diverging else []
    notes = [*verification.problems, *first, *map(str, verification.as_used), *verification.notes]
    return part(str(verification).partition(":\n")[0], found, notes=notes)


def _by_op(changes: Sequence[Change]) -> str:
    """What became of nodes as a table, those refused first, alike ones in one row."""
    counts = Counter((c.op, c.action, ", ".join(c.into), c.reason) for c in changes)
    ordered = sorted(counts.items(), key=lambda item: (item[0][1] != "refused", item[0][1] == "kept", -item[1]))
    rows = [(count, op.removeprefix("ai.onnx::"), action, into, why) for (op, action, into, why), count in ordered]
    return table(("nodes", "op", "action", "into", "reason"), rows)
