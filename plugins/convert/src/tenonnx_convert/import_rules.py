"""Import rules: replacements for nodes while a model is read."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from types import ModuleType
from typing import TYPE_CHECKING, Any

from tenonnx.errors import InvalidCall

if TYPE_CHECKING:
    from tenonnx.graph.graph import Node

#: Entry-point group of import rules: an ``ImportRule``, a list of them, or a module that contains some.
GROUP = "tenonnx.rules"


@dataclass(frozen=True, eq=False)
class ImportRule:
    """A function of a node and its inputs, with conditions on the node.

    ``op`` is an op type, ``domain`` a domain, ``name`` a pattern of node names such as ``"encoder/*"``, ``frontend``
    the reader, such as ``"onnx"``, ``"safetensors"`` or ``"torch"``; None matches all. Among several matching rules the
    one of highest ``priority`` is called first, then the most specific one. The function returns one value for each
    output of the node, or None to try the next rule and finally keep the node.
    """

    function: Callable[..., Any]
    op: str | None = None
    domain: str | None = None
    name: str | None = None
    frontend: str | None = None
    priority: int = 0

    def __call__(self, node: Node, *inputs: Any) -> Any:
        return self.function(node, *inputs)

    @property
    def title(self) -> str:
        """Description of the matching nodes."""
        op = "::".join(part for part in (self.domain, self.op or "*") if part)
        named = f' named "{self.name}"' if self.name is not None else ""
        return f"{op}{named}" + (f" of {self.frontend}" if self.frontend else "")

    @property
    def order(self) -> tuple[int, int]:
        """Sort key; rules with lower keys are called first."""
        selectors = (self.name, self.domain, self.op, self.frontend)
        weights = (8, 2, 4, 1)
        return -self.priority, -sum(w for w, part in zip(weights, selectors, strict=True) if part is not None)

    def is_for(self, node: Node) -> bool:
        return (
            self.op in (None, node.op_type)
            and self.domain in (None, node.domain)
            and (self.name is None or fnmatchcase(node.name, self.name))
        )


def import_rule(
    key: str | None = None,
    *,
    domain: str | None = None,
    name: str | None = None,
    frontend: str | None = None,
    priority: int = 0,
) -> Callable[[Callable[..., Any]], ImportRule]:
    """Decorator for an import rule: ``@import_rule("com.acme::Mystery")``, by op, domain or name pattern.

    ``key`` is ``"Op"`` or ``"domain::Op"``. Raises ``InvalidCall`` without any condition.
    """
    texts = {"key": key, "domain": domain, "name": name, "frontend": frontend}
    wrong = next((f"{what}={text!r}" for what, text in texts.items() if text is not None and not _is_text(text)), "")
    if wrong or not isinstance(priority, int):
        raise InvalidCall(
            f"an argument of an import rule is no {'string' if wrong else 'number'}",
            given=wrong or f"priority={priority!r}",
            do='@import_rule("com.acme::Mystery", priority=1)',
        )
    said, colons, op = (key or "").rpartition("::")
    if key is None and domain is None and name is None:
        what = "an import rule names no nodes"
        raise InvalidCall(what, do='import_rule("Op"), import_rule(domain="com.acme") or import_rule(name="encoder/*")')
    if colons and domain is not None:
        raise InvalidCall("an import rule has two domains", given=f"{key} and domain={domain!r}")
    wanted = (said or "ai.onnx") if colons else domain

    def decorate(function: Callable[..., Any]) -> ImportRule:
        if not callable(function):
            raise InvalidCall("an import rule is not a function of a node and its inputs", given=repr(function)[:200])
        return ImportRule(function, op or None, wanted, name, frontend, priority)

    return decorate


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and value != ""


def rules_of(given: Any) -> list[ImportRule]:
    """The import rules in a list, module or mapping, whose keys are those of ``load(rules=...)``."""
    if isinstance(given, ImportRule):
        return [given]
    if isinstance(given, ModuleType):
        own = [value for value in vars(given).values() if isinstance(value, ImportRule)]
        listed = vars(given).get("rules")
        further = rules_of(listed) if isinstance(listed, Mapping | list | tuple) else []
        return list(dict.fromkeys([*own, *further]))
    if isinstance(given, Mapping):
        return [rule for key, function in given.items() for rule in _keyed(key, function)]
    if isinstance(given, Sequence) and all(isinstance(rule, ImportRule) for rule in given):
        return list(given)
    raise InvalidCall(
        "rules are neither a mapping from names of nodes and ops to functions, nor import rules",
        given=repr(given)[:200],
        do='{"com.acme::Mystery": function}, or [import_rule("com.acme::Mystery")(function)]',
    )


def _keyed(key: Any, function: Any) -> list[ImportRule]:
    """The rules for a key: a node name, ``"Op"`` or ``"domain::Op"``."""
    if not _is_text(key) or not callable(function):
        what = "rules do not map names of nodes and ops to functions"
        raise InvalidCall(what, given=f"{key!r}: {function!r}"[:200])
    domain, colons, op = key.rpartition("::")
    literal = "".join(f"[{c}]" if c in "*?[" else c for c in key)
    by_op = ImportRule(function, op, domain or "ai.onnx") if colons else ImportRule(function, key)
    return [ImportRule(function, name=literal), by_op]
