"""What became of nodes, for people: how many, by action and by op, and then one by one."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from tenonnx.tools import Change
from tenonnx_cli.output import plural, say, say_table

if TYPE_CHECKING:
    from collections.abc import Sequence

#: How many nodes, and how many of the ops that took the place of one, are named.
_NODES, _OPS = 3, 8

#: In the order of the pains that they cost.
_ACTIONS = ("kept", "respelled", "fused", "folded", "lowered", "expanded", "inlined", "cast", "closed", "refused")


def summarize(changes: Sequence[Change]) -> dict[str, Any]:
    """How many nodes of each op met which fate; the ops with refused nodes come first, then the most frequent."""
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
    """Print how many nodes of each op met which fate, as a table."""
    summary = summarize(changes)
    if not summary["ops"]:
        return
    columns = ["op", *summary["actions"]]
    say_table([[_short(row["op"]), *(str(row[a] or "-") for a in columns[1:])] for row in summary["ops"]], columns)


def say_changes(changes: Sequence[Change]) -> None:
    """Print the nodes that were not kept, the refused ones last."""
    groups: dict[tuple[str, ...], list[str]] = {}
    for change in changes:
        if change.action != "kept":
            key = (change.op, change.action, _into(change), change.reason, change.do)
            groups.setdefault(key, []).append(change.node)
    for (op, action, into, reason, do), nodes in sorted(groups.items(), key=lambda group: group[0][1] == "refused"):
        named = ", ".join(f'"{name}"' for name in nodes[:_NODES])
        more = f" and {len(nodes) - _NODES:,} more" if len(nodes) > _NODES else ""
        say(f"  {_short(op)}: {action}{f' into {into}' if into else ''}")
        say(f"      {plural(len(nodes), 'node' if '::' in op else 'value')}: {named}{more}")
        for line in filter(None, (reason, f"do: {do}" if do else "")):
            say(f"      {line}")


def _short(op: str) -> str:
    return op.removeprefix("ai.onnx::")


def _into(change: Change) -> str:
    """What stands in the place of a node, most frequent ops first."""
    counts = sorted(change.into.items(), key=lambda item: -item[1])
    named = [name if count == 1 else f"{name} x{count}" for name, count in counts[:_OPS]]
    rest = sum(count for _, count in counts[_OPS:])
    return ", ".join(named) + (f" and {rest} more" if rest else "")
