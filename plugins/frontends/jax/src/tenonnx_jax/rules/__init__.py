"""Rules of JAX primitives: one function of ops for each.

Packages register rules of their primitives by ``tenonnx_jax.rule("name")``, as a decorator of a function that takes the
equation and the values of its inputs, and returns one or several values.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

#: A rule: a function from an equation and its inputs to its outputs.
Rule = Callable[..., Any]

#: Rules by name of the primitive.
RULES: dict[str, Rule] = {}

#: Primitives that only move elements: values with several parts are moved part by part.
MOVING: set[str] = set()

#: Rules for values with several parts, by name of the primitive.
OF_PARTS: dict[str, Rule] = {}


def rule(*names: str, moves: bool = False) -> Callable[[Rule], Rule]:
    """Register a rule, ``function(equation, *values, **params)``, for primitives of these names."""

    def register(function: Rule) -> Rule:
        for name in names:
            RULES[name] = function
            if moves:
                MOVING.add(name)
        return function

    return register


def of_parts(*names: str) -> Callable[[Rule], Rule]:
    """Register a rule for calls with complex numbers or keys, as ``Parts``."""

    def register(function: Rule) -> Rule:
        OF_PARTS.update(dict.fromkeys(names, function))
        return function

    return register


def composed(*names: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Define primitives by ``function(*arrays, **params)`` in terms of other primitives, which JAX traces."""

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        def traced(equation: Any, *values: Any, **params: Any) -> Any:
            found = equation.trace(lambda *arrays: function(*arrays, **params), *values)
            return list(found)

        for name in names:
            RULES[name] = traced
            OF_PARTS[name] = traced
        return function

    return register
