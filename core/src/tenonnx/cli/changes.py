"""What became of nodes, for people: nodes to which the same happened share a line."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tenonnx.cli.output import plural, say
from tenonnx.transforms.targets import Change

if TYPE_CHECKING:
    from collections.abc import Sequence

#: How many nodes, and how many of the ops that took the place of one, are named.
_NODES, _OPS = 3, 8


def say_changes(changes: Sequence[Change]) -> None:
    """Print the nodes that were not kept, the refused ones last."""
    groups: dict[tuple[str, str, str, str], list[str]] = {}
    for change in changes:
        if change.action != "kept":
            into = _into(change)
            groups.setdefault((change.op, change.action, into, change.reason), []).append(change.node)
    for (op, action, into, reason), nodes in sorted(groups.items(), key=lambda group: group[0][1] == "refused"):
        named = ", ".join(f'"{name}"' for name in nodes[:_NODES])
        more = f" and {len(nodes) - _NODES:,} more" if len(nodes) > _NODES else ""
        say(f"  {op.removeprefix('ai.onnx::')}: {action}{f' into {into}' if into else ''}")
        say(f"      {plural(len(nodes), 'node')}: {named}{more}")
        if reason:
            say(f"      {reason}")


def _into(change: Change) -> str:
    """What stands in the place of a node, most frequent ops first."""
    counts = sorted(change.into.items(), key=lambda item: -item[1])
    named = [name if count == 1 else f"{name} x{count}" for name, count in counts[:_OPS]]
    rest = sum(count for _, count in counts[_OPS:])
    return ", ".join(named) + (f" and {rest} more" if rest else "")
