"""Branches and loops over subgraphs."""

from __future__ import annotations

from typing import Any

import numpy as np

import tenonnx_standard as ops
from tenonnx.extend import Graph, Value, constant, inline, subgraph
from tenonnx_litert.builtins.builtin import builtin


@builtin("IF", "IfOptions")
def if_(cond, *, then_branch: Graph, else_branch: Graph):
    return ops.if_(cond, then_branch=then_branch, else_branch=else_branch)


@if_.type
def if_type(cond, *, then_branch, else_branch):
    return ops.if_.rules["type"](cond, then_branch=then_branch, else_branch=else_branch)


@builtin("WHILE", "WhileOptions")
def while_(*state, cond: Graph, body: Graph):
    """Run ``body`` on the state as long as ``cond`` returns true; the final state."""

    def step(_: Value, __: Value, *carried: Value) -> Any:
        state = inline(body, carried)
        return [*inline(cond, state), *state]

    kinds = [("step", None), ("going_on", None), *((f"state_{k}", v.type) for k, v in enumerate(state))]
    return ops.loop(
        constant(np.asarray(np.iinfo(np.int64).max)), *inline(cond, state), *state, body=subgraph(step, kinds)
    )


@while_.type
def while_type(*state, cond, body):
    """The types of the body's inputs, which are the types of the state in every iteration."""
    return tuple(value.type for value in body.inputs)
