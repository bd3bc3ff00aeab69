"""Rules of TensorFlow ops: one function of ONNX ops for each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tenonnx_frontends import added_rule


@dataclass(frozen=True)
class Rule:
    """A function of a node and its inputs, with the names of the outputs if there are several."""

    function: Callable[..., Any]
    outputs: Sequence[str]
    takes_interpreter: bool


#: Rules by op type.
RULES: dict[str, Rule] = {}


def rule(*names: str, outputs: str = "", interpreter: bool = False) -> Callable[[Callable[..., Any]], Any]:
    """Register a function as the rule of these ops.

    It is called with the node (``node["T"]`` is an attribute) and a ``Value`` for each input. It returns one value, or
    a list with a value for each output; ``outputs`` are their names in functions, in order. ``interpreter``: the
    interpreter is the first argument, for ops with functions or state.
    """

    def registered(function: Callable[..., Any]) -> Callable[..., Any]:
        rule = Rule(added_rule(function, names, RULES), outputs.split(), interpreter)
        RULES.update(dict.fromkeys(names, rule))
        return function

    return registered
