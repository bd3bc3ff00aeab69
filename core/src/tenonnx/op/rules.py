"""The open table of rules: what a consumer knows of an op beyond its body."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tenonnx.op.op import Op

#: Rules that packages add to the ops of other packages, by (op, consumer).
_foreign: dict[tuple[Op, str], Callable[..., Any]] = {}


def find_rule(op: Op, consumer: str) -> Callable[..., Any] | None:
    """The rule of ``op`` for ``consumer``, or None."""
    rule = op.rules.get(consumer)
    return rule if rule is not None else _foreign.get((op, consumer))


def add_rule(op: Op, consumer: str, rule: Callable[..., Any]) -> None:
    """Give another package's op a rule. Its own rule wins; a second foreign one raises ``ValueError``."""
    if _foreign.setdefault((op, consumer), rule) is not rule:
        raise ValueError(f"{op.title} has a {consumer} rule from another package already")
