"""The table of rules by op and consumer."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from importlib import import_module
from typing import Any

from tenonnx.errors import PluginError
from tenonnx.graph.definitions import definitions
from tenonnx.op.op import Op
from tenonnx.op.rule_kinds import TRAITS, check_kind

#: By consumer the modules of rules that nobody has asked for yet.
_awaited: dict[str, list[str]] = {}
_changing = threading.Lock()


def find_rule(op: Op, consumer: str) -> Callable[..., Any] | None:
    """The rule of ``op`` for ``consumer``: its own, else the one that a package gave it in this registry; or None."""
    kind = consumer.partition(".")[0] if "." in consumer else consumer
    if kind in _awaited:
        _import_awaited(kind)
    rule = op.rules.get(consumer)
    return rule if rule is not None else definitions().rule(op, consumer)


def await_rules(module: str, consumers: Iterable[str]) -> None:
    """Import a module, which holds nothing but rules, when one of these consumers first asks for a rule of any op."""
    with _changing:
        for consumer in consumers:
            if consumer not in TRAITS:
                check_kind(module, consumer)
            if module not in _awaited.setdefault(consumer, []):
                _awaited[consumer].append(module)


def _import_awaited(consumer: str) -> None:
    """Import what a consumer awaits. Of threads that ask at once, all wait until the modules are there."""
    modules = tuple(_awaited.get(consumer, ()))
    for module in modules:
        _import(module, consumer)
    with _changing:
        left = [module for module in _awaited.pop(consumer, ()) if module not in modules]
        if left:
            _awaited[consumer] = left


def _import(module: str, consumer: str) -> None:
    try:
        import_module(module)
    except Exception as error:
        package = module.partition(".")[0]
        raise PluginError(
            f"cannot import {module}, which has rules for {consumer} according to {package}",
            given=f"{type(error).__name__}: {error}",
            do=f"correct or reinstall {package}, or leave it out with TENONNX_PLUGINS",
        ) from error


def broken_rules() -> Iterator[PluginError]:
    """Import all modules that are awaited; the errors of those that cannot be imported."""
    awaited = {module: consumer for consumer, modules in list(_awaited.items()) for module in modules}
    for module, consumer in awaited.items():
        try:
            _import(module, consumer)
        except PluginError as error:
            yield error


def find_trait(op: Op, name: str) -> Any:
    """Value of a trait of an op, None where it is not declared; the traits are in ``tenonnx.op.rule_kinds.TRAITS``."""
    if name in _awaited:
        _import_awaited(name)
    return op.facts.get(name)


def moves_data(op: Op, attributes: Mapping[str, Any]) -> bool:
    """Whether a call moves, chooses or compares elements and computes nothing, by the trait ``data_movement``.

    Any wider element type serves such a call.
    """
    fact = find_trait(op, "data_movement")
    if not isinstance(fact, Mapping):
        return fact is True
    there = op.signature.attributes
    return all(attributes.get(name, there[name]) in values for name, values in fact.items() if name in there)


def add_rule(op: Op, consumer: str, rule: Callable[..., Any]) -> None:
    """Give another package's op a rule, in the registry that is loading or in use, else in that of all packages.

    The op's own rule wins. Raises ``PluginError`` where it has one from another package.
    """
    check_kind(op.title, consumer)
    definitions().add_rule(op, consumer, rule)
