"""Outcomes of nodes as text: counts by action and op, then one by one."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tenonnx_cli.output import plural, say, say_table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tenonnx import Graph
    from tenonnx.tools import Change

#: Maximum number of nodes, and of ops that replace one, listed by name.
_NODES, _OPS = 3, 8

#: From least to most severe.
_ACTIONS = ("kept", "adapted", "fused", "folded", "lowered", "expanded", "inlined", "cast", "closed", "refused")


def summarize(changes: Sequence[Change]) -> dict[str, Any]:
    """Counts of nodes by op and action; ops with refused nodes come first, then the most frequent."""
    ops: dict[str, Counter[str]] = {}
    for change in changes:
        ops.setdefault(change.op, Counter())[change.action] += 1
    total = sum(ops.values(), Counter[str]())
    rows = sorted(ops.items(), key=lambda item: (-item[1]["refused"], -item[1].total(), item[0]))
    return {
        "actions": {action: total[action] for action in _ACTIONS if total[action]},
        "ops": [{"op": op, **{a: counts[a] for a in _ACTIONS if total[a]}} for op, counts in rows],
    }


def say_summary(changes: Sequence[Change]) -> None:
    """Print a table of the outcomes by op."""
    summary = summarize(changes)
    if not summary["ops"]:
        return
    columns = ["op", *summary["actions"]]
    say_table([[_short(row["op"]), *(str(row[a] or "-") for a in columns[1:])] for row in summary["ops"]], columns)


def removed_nodes(before: Graph, after: Graph, changes: Sequence[Change], transforms: Sequence[str]) -> list[Change]:
    """Nodes that transforms removed or merged, which have no other outcome."""
    changed = {change.node for change in changes}
    left = {node.name for node in after.walk()}
    from tenonnx.tools import Change

    by = ", ".join(f"--{name.replace('_', '-')}" for name in transforms)
    return [
        Change.of(node, node.name, "removed") if not by else replace(Change.of(node, node.name, "removed"), reason=by)
        for node in before.walk()
        if node.name not in changed and node.name not in left
    ]


def say_changes(changes: Sequence[Change], *, all_nodes: bool = False) -> None:
    """Print the nodes that were not kept, refused ones last; with ``all_nodes`` each by name."""
    groups: dict[tuple[str, ...], list[str]] = {}
    for change in changes:
        if change.action != "kept":
            key = (change.op, change.action, _into(change), change.reason, change.do)
            groups.setdefault(key, []).append(change.node)
    for (op, action, into, reason, do), nodes in sorted(groups.items(), key=lambda group: group[0][1] == "refused"):
        shown = nodes if all_nodes else nodes[:_NODES]
        named = ", ".join(f'"{name}"' for name in shown)
        more = f" and {len(nodes) - len(shown):,} more" if len(nodes) > len(shown) else ""
        say(f"  {_short(op)}: {action}{f' into {into}' if into else ''}")
        say(f"      {plural(len(nodes), 'node' if '::' in op else 'value')}: {named}{more}")
        for line in filter(None, (reason, f"do: {do}" if do else "")):
            say(f"      {line}")


def _short(op: str) -> str:
    return op.removeprefix("ai.onnx::")


def _into(change: Change) -> str:
    """Ops that replace a node, most frequent first."""
    counts = sorted(change.into.items(), key=lambda item: -item[1])
    named = [name if count == 1 else f"{name} x{count}" for name, count in counts[:_OPS]]
    rest = sum(count for _, count in counts[_OPS:])
    return ", ".join(named) + (f" and {rest} more" if rest else "")
