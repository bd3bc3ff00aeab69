"""Reassociation of products in the backward pass of a loop.

A cotangent is multiplied by a stored value, and the product by another one. Here the stored values are multiplied by
each other first, for all iterations at once, and parts of a Concat together. Each backward iteration then has fewer and
larger steps, which cost a runtime less overhead.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

import tenonnx_standard as ops
from tenonnx.extend import DType, Graph, Value
from tenonnx.extend.transforms import Call, Rewriter

Factors = tuple[Value, Value]


def gathered(graph: Graph, cotangents: Collection[Value]) -> Graph:
    """``graph``, which takes ``cotangents``, with the factors of each grouped; inputs and outputs keep their order."""

    def decide(rewriter: Rewriter, call: Call) -> Sequence[Value] | None:
        if call.op is ops.mul:
            return _multiplied(call, moves)
        return _joined(call, moves) if call.op is ops.concat else None

    rewriter = Rewriter(graph, decide)
    moves = _moving({rewriter.copy(value) for value in cotangents})
    return rewriter.run()


def _moving(known: Collection[Value]) -> Callable[[Value], bool]:
    """A predicate: whether a value depends on any of ``known``."""
    found = dict.fromkeys(known, True)

    def moves(value: Value) -> bool:
        if value not in found:
            found[value] = value.producer is not None and any(map(moves, value.producer.uses))
        return found[value]

    return moves


def _factors(value: Value, moves: Callable[[Value], bool]) -> Factors | None:
    """Split an elementwise product into the factor that varies with the cotangents and the other one."""
    node = value.producer
    if node is None or node.op is not ops.mul or value.dtype not in (DType.float32, DType.float64):
        return None
    a, b = (v for v in node.inputs if v is not None)
    if not a.type == b.type == value.type or moves(a) == moves(b):
        return None
    return (a, b) if moves(a) else (b, a)


def _multiplied(call: Call, moves: Callable[[Value], bool]) -> Sequence[Value] | None:
    a, b = (v for v in call.inputs if v is not None)
    if moves(a) == moves(b) or a.type != b.type:
        return None
    moving, factor = (a, b) if moves(a) else (b, a)
    inner = _factors(moving, moves)
    return None if inner is None else [ops.mul(inner[0], ops.mul(inner[1], factor))]


def _joined(call: Call, moves: Callable[[Value], bool]) -> Sequence[Value] | None:
    axis, values = call.attributes["axis"], [v for v in call.inputs if v is not None]
    found = [_factors(v, moves) for v in values]
    if len(values) < 2 or any(each is None or each[0].rank is None for each in found):
        return None
    pairs = [each for each in found if each is not None]
    axis -= (values[0].rank or 0) if axis >= 0 else 0  # a negative axis is the same for all iterations at once
    parts: list[Value] = []
    for moving, _ in pairs:
        node = moving.producer
        alike = node is not None and node.op is ops.concat and node.attributes.get("axis") == axis
        parts += [v for v in node.inputs if v is not None] if alike and node is not None else [moving]
    return [ops.mul(ops.concat(*parts, axis=axis), ops.concat(*(factor for _, factor in pairs), axis=axis))]
