"""Exchange of Relu and MaxPool: Relu runs on the pooled, smaller tensor, with equal numbers and gradients."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from tenonnx.extend import Graph, Value, op
from tenonnx_optimize.canonicalize import canonicalize
from tenonnx_standard.activation import relu
from tenonnx_standard.algebra import rectified
from tenonnx_standard.max_pooling import max_pool


def pooled_first(graph: Graph) -> Graph:
    """``graph`` with MaxPool(Relu(x)) replaced by Relu(MaxPool(x))."""
    return canonicalize(graph, [_pooled_relu], at=lambda node: node.op is max_pool)


@op("PooledRelu", domain="tenonnx.training", signature=max_pool.signature)
def _pooled_relu(X: Value, **attributes: Any) -> Any:
    return relu(max_pool(X, **attributes))


@_pooled_relu.pattern
def pooled_relu_pattern(y: Value) -> Iterator[tuple[Sequence[Value | None], dict[str, Any]]]:
    inner = rectified(y)
    pool = None if inner is None else inner.producer
    if pool is not None and pool.op is max_pool:
        yield pool.inputs, dict(pool.attributes)
