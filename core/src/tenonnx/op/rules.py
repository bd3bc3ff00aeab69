"""Table of rules by op and consumer."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from importlib import import_module
from typing import Any

from tenonnx.errors import PluginError
from tenonnx.graph.definitions import definitions
from tenonnx.op.op import Op
from tenonnx.op.rule_kinds import TRAITS, check_kind

#: Modules of rules that are not imported yet, by consumer.
_awaited: dict[str, list[str]] = {}
_changing = threading.Lock()


def find_rule(op: Op, consumer: str) -> Callable[..., Any] | None:
    """The rule of ``op`` for ``consumer``: its own, else one that a package added to the registry; or None."""
    kind = consumer.partition(".")[0] if "." in consumer else consumer
    if kind in _awaited:
        _import_awaited(kind)
    rule = op.rules.get(consumer)
    return rule if rule is not None else definitions().rule(op, consumer)


def await_rules(module: str, consumers: Iterable[str]) -> None:
    """Import a module of rules when one of these consumers first looks up a rule."""
    with _changing:
        for consumer in consumers:
            if consumer not in TRAITS:
                check_kind(module, consumer)
            if module not in _awaited.setdefault(consumer, []):
                _awaited[consumer].append(module)


def _import_awaited(consumer: str) -> None:
    """Import the modules of a consumer's rules. Concurrent threads wait until the import is complete."""
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
    """Import all pending modules of rules; returns the errors of those that fail."""
    awaited = {module: consumer for consumer, modules in list(_awaited.items()) for module in modules}
    for module, consumer in awaited.items():
        try:
            _import(module, consumer)
        except PluginError as error:
            yield error


def find_trait(op: Op, name: str) -> Any:
    """Value of a trait of an op, None if not declared; the traits are in ``tenonnx.op.rule_kinds.TRAITS``."""
    if name in _awaited:
        _import_awaited(name)
    return op.facts.get(name)


def moves_data(op: Op, attributes: Mapping[str, Any]) -> bool:
    """Whether a call only moves, selects or compares elements, by the trait ``data_movement``.

    Such a call works with any wider element type.
    """
    fact = find_trait(op, "data_movement")
    if not isinstance(fact, Mapping):
        return fact is True
    own_attributes = op.signature.attributes
    return all(
        attributes.get(name, own_attributes[name]) in values for name, values in fact.items() if name in own_attributes
    )


def add_rule(op: Op, consumer: str, rule: Callable[..., Any]) -> None:
    """Add a rule to another package's op, in the registry that is loading or active, else in the default registry.

    The op's own rule has priority. Raises ``PluginError`` if another package has added one.
    """
    check_kind(op.title, consumer)
    definitions().add_rule(op, consumer, rule)
