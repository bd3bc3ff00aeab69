"""Primitives of JAX as ops, a function for each.

A package gives a primitive of its own such a rule by ``tenonnx_jax.rule("name")``, above a function that takes the
equation and the values of its inputs, and returns a value, or several.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

#: A rule: what an equation of a primitive gives for values.
Rule = Callable[..., Any]

#: Rules by the name of a primitive.
RULES: dict[str, Rule] = {}

#: Primitives that only move elements: of what has several parts, each is moved.
MOVING: set[str] = set()

#: Rules for what has several parts, by the name of a primitive.
OF_PARTS: dict[str, Rule] = {}


def rule(*names: str, moves: bool = False) -> Callable[[Rule], Rule]:
    """Give primitives of these names a rule, ``function(equation, *values, **params)``."""

    def register(function: Rule) -> Rule:
        for name in names:
            RULES[name] = function
            if moves:
                MOVING.add(name)
        return function

    return register


def of_parts(*names: str) -> Callable[[Rule], Rule]:
    """The same for calls that take or give complex numbers or keys, as ``Parts``."""

    def register(function: Rule) -> Rule:
        OF_PARTS.update(dict.fromkeys(names, function))
        return function

    return register


def composed(*names: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Say what primitives mean by ``function(*arrays, **params)`` over other primitives, which JAX traces."""

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        def traced(equation: Any, *values: Any, **params: Any) -> Any:
            found = equation.trace(lambda *arrays: function(*arrays, **params), *values)
            return list(found)

        for name in names:
            RULES[name] = traced
            OF_PARTS[name] = traced
        return function

    return register
