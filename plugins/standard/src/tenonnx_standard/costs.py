"""Rules ``cost``: multiply-adds of ops by input shapes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import tenonnx_standard as ops
from tenonnx.extend import Op, Value


def matrices(a: Value, b: Value, **_: Any) -> Any:
    """Matrix products with broadcast batches."""
    batch = math.prod(max(pair) for pair in _aligned(a.shape[:-2], b.shape[:-2]))
    rows = a.shape[-2] if a.ndim > 1 else 1
    columns = b.shape[-1] if b.ndim > 1 else 1
    return batch * rows * a.shape[-1] * columns


def gemm(a: Value, b: Value, *_: Any, transA: int = 0, transB: int = 0, **__: Any) -> Any:
    return math.prod(a.shape) * b.shape[0 if transB else 1]


def _aligned(one: Sequence[Any], other: Sequence[Any]) -> list[tuple[Any, Any]]:
    length = max(len(one), len(other))
    return list(zip((1,) * (length - len(one)) + tuple(one), (1,) * (length - len(other)) + tuple(other), strict=True))


def convolution(x: Value, w: Value, *_: Any, **attributes: Any) -> Any:
    result = ops.conv(*_in_a_graph(x, w), **attributes)
    return math.prod(result.shape) * math.prod(w.shape[1:])


def transposed_convolution(x: Value, w: Value, *_: Any, **attributes: Any) -> Any:
    return math.prod(x.shape) * math.prod(w.shape[1:])


def recurrent(gates: int) -> Any:
    def cost(x: Value, w: Value, r: Value, *_: Any, **attributes: Any) -> Any:
        steps, batch = x.shape[:2] if not attributes.get("layout") else x.shape[1::-1]
        directions, _wide, hidden = r.shape
        return steps * batch * directions * gates * hidden * (x.shape[2] + hidden)

    return cost


def _in_a_graph(*values: Value) -> list[Value]:
    from tenonnx import Graph

    graph = Graph("sizes")
    return [graph.input(f"x{place}", value.tensor) for place, value in enumerate(values)]


def count(op: Op, cost: Any) -> None:
    """Register a rule ``cost`` for all versions of an op, since older ones count alike."""
    for meaning in op.meanings:
        meaning.rule("cost", cost)
