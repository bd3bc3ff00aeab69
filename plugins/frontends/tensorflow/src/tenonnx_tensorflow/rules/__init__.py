"""Ops of TensorFlow over ONNX ops, a small function for each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tenonnx_frontends import added_rule


@dataclass(frozen=True)
class Rule:
    """A function of a node and what its inputs hold, and how functions name its outputs where there are several."""

    function: Callable[..., Any]
    outputs: Sequence[str]
    takes_interpreter: bool


#: Rules by the name of the op.
RULES: dict[str, Rule] = {}


def rule(*names: str, outputs: str = "", interpreter: bool = False) -> Callable[[Callable[..., Any]], Any]:
    """Let a function say what nodes of these ops are.

    It is called with the node (``node["T"]`` is an attribute) and a ``Value`` for each input, and returns a value for
    each output, in a list where there are several, whose names in functions are ``outputs``, in order. With
    ``interpreter``, the interpreter comes first: for what calls functions, or has a state.
    """

    def registered(function: Callable[..., Any]) -> Callable[..., Any]:
        held = Rule(added_rule(function, names, RULES), outputs.split(), interpreter)
        RULES.update(dict.fromkeys(names, held))
        return function

    return registered
