"""Calls of functions, loops and branches."""

from __future__ import annotations

from typing import Any

import numpy as np

import tenonnx_standard as ops
from tenonnx.extend import DType, NotRepresentable, Value, constant, static
from tenonnx_tensorflow.loops import Looping, branched, looped
from tenonnx_tensorflow.rules import rule
from tenonnx_tensorflow.tracked_values import number, scalar


@rule("PartitionedCall", "StatefulPartitionedCall", "TPUPartitionedCall", outputs="output", interpreter=True)
def call(interpreter: Any, node: Any, *values: Any) -> list[Any]:
    result: list[Any] = interpreter.call(node["f"], values)
    return result


@rule("XlaCallModule", "PyFunc", "EagerPyFunc", "PyFuncStateless", interpreter=True)
def foreign(interpreter: Any, node: Any, *_: Any) -> Any:
    raise NotRepresentable(
        "the graph has an op that is not computed by TensorFlow",
        given=node.title,
        do="convert a function of JAX by tenonnx-jax, and leave out calls of Python",
    )


def condition_of(value: Value) -> Value:
    """``value`` as a bool scalar: nonzero numbers and nonempty strings are true."""
    if value.dtype is DType.bool:
        return value
    empty = constant(np.asarray("", object)) if value.dtype is DType.string else number(0, value)
    return ops.not_(ops.equal(value, empty))


@rule("If", "StatelessIf", outputs="output", interpreter=True)
def if_(interpreter: Any, node: Any, condition: Value, *values: Any) -> list[Any]:
    return branched(
        interpreter.state,
        condition_of(condition),
        lambda: interpreter.call(node["then_branch"], values),
        lambda: interpreter.call(node["else_branch"], values),
        node.title,
    )


@rule("Case", "StatelessCase", outputs="output", interpreter=True)
def case(interpreter: Any, node: Any, index: Value, *values: Any) -> list[Any]:
    """Case, where an index out of range selects the last branch."""
    branches = node["branches"]
    contents = static(index)
    if contents is not None:
        place = int(np.asarray(contents))
        return list(interpreter.call(branches[place if 0 <= place < len(branches) else -1], values))

    def chosen(first: int) -> list[Any]:
        if first == len(branches) - 1:
            return list(interpreter.call(branches[first], values))
        return branched(
            interpreter.state,
            ops.equal(scalar(index), number(first, index)),
            lambda: interpreter.call(branches[first], values),
            lambda: chosen(first + 1),
            node.title,
        )

    return chosen(0)


@rule("While", "StatelessWhile", outputs="output", interpreter=True)
def while_(interpreter: Any, node: Any, *values: Any) -> list[Any]:
    condition, body = node["cond"], node["body"]
    return looped(
        Looping(
            interpreter.state,
            values,
            lambda states: condition_of(interpreter.call(condition, states)[0]),
            lambda states: interpreter.call(body, states),
            _fixed(interpreter.function(body)),
            node.title,
        )
    )


def _fixed(function: Any) -> list[bool]:
    """Whether a function returns each argument unchanged at its own position."""
    found = []
    for argument, result in zip(function.inputs, function.results, strict=True):
        reference = result
        while reference.node in function.nodes and function.nodes[reference.node].op == "Identity":
            reference = function.nodes[reference.node].inputs[0]
        found.append(reference.node == argument)
    return found


@rule("LoopCond")
def loop_condition(node: Any, x: Value) -> Value:
    return x


@rule("For", outputs="output", interpreter=True)
def for_(interpreter: Any, node: Any, start: Value, limit: Value, delta: Value, *values: Any) -> list[Any]:
    body = node["body"]
    found = looped(
        Looping(
            interpreter.state,
            [start, *values],
            lambda states: ops.less(states[0], limit),
            lambda states: [ops.add(states[0], delta), *interpreter.call(body, states)],
            [False] * (1 + len(values)),
            node.title,
        )
    )
    return found[1:]
