"""The open table of rules: what a consumer knows of an op beyond its body."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tenonnx.graph.definitions import definitions
from tenonnx.graph.values import Value
from tenonnx.op.op import Op, check_consumer


def find_rule(op: Op, consumer: str) -> Callable[..., Any] | None:
    """The rule of ``op`` for ``consumer``: its own, else the one that a package gave it in this registry; or None."""
    rule = op.rules.get(consumer)
    return rule if rule is not None else definitions().rule(op, consumer)


def always(*inputs: Any, **attributes: Any) -> bool:
    """The rule of what holds of every call."""
    return True


def selects(op: Op, inputs: Sequence[Value | None], attributes: Mapping[str, Any]) -> bool:
    """Whether a call moves, chooses or compares elements and computes nothing with them, by its rule ``selects``.

    Any wider element type serves such a call.
    """
    rule = find_rule(op, "selects")
    return rule is not None and bool(rule(*inputs, **attributes))


def add_rule(op: Op, consumer: str, rule: Callable[..., Any]) -> None:
    """Give another package's op a rule, in the registry that is loading or in use, else in that of all packages.

    The op's own rule wins. Raises ``PluginError`` where it has one from another package.
    """
    check_consumer(op.title, consumer)
    definitions().add_rule(op, consumer, rule)
