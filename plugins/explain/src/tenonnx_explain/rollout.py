"""Attention rollout."""

from __future__ import annotations

import numpy as np

import tenonnx_standard as ops
from tenonnx.extend import Graph, InvalidCall, Node, Value
from tenonnx.extend.transforms import decompose


def with_decomposed_attention(graph: Graph) -> Graph:
    """Decompose attention ops, so that their attention weights become values of the graph."""
    return decompose(graph, keep=lambda call: "Attention" not in call.op.name).infer()


def attention_rollout(graph: Graph) -> dict[str, Value]:
    """Attention rollout: the product of the attention matrices of all layers (Abnar and Zuidema, 2020).

    The matrix of a layer is the mean over heads, averaged with the identity for the residual connection. In the result
    ``float[batch, tokens, tokens]``, row i has the shares of the input positions in output position i. Raises
    ``InvalidCall`` for a model without attention weights.
    """
    layers = attention_weights(graph)
    if not layers:
        raise InvalidCall(
            "the model has no self-attention weights",
            given="no Softmax of a rank of at least 3 over as many positions as it has rows, read by MatMul",
            do="choose another method",
        )
    rolled = None
    for weights in layers:
        mean = ops.reduce_mean(weights, list(range(1, weights.ndim - 2)), keepdims=0) if weights.ndim > 3 else weights
        places = ops.range_(np.int64(0), ops.shape(mean, start=-1)[0], np.int64(1))
        identity = ops.cast(ops.equal(ops.unsqueeze(places, [1]), places), to=mean.dtype)
        layer = mean * 0.5 + identity * 0.5
        layer = layer / ops.reduce_sum(layer, [-1], keepdims=1)
        rolled = layer if rolled is None else ops.matmul(layer, rolled)
    assert rolled is not None
    return {"attention/rollout": rolled}


def attention_weights(graph: Graph) -> list[Value]:
    """Self-attention weights ``float[batch, heads, tokens, tokens]`` of all layers, in order."""
    readers = graph.uses()
    return [
        value
        for node in graph.nodes
        if node.op_type == "Softmax"
        for value in node.outputs
        if value is not None and value.rank is not None and value.ndim >= 3
        if _is_square(value) and any(_multiplies(reader, readers) for reader in readers.get(value, ()))
    ]


def _is_square(value: Value) -> bool:
    rows, columns = value.shape[-2:]
    return rows is None or columns is None or rows == columns


def _multiplies(node: Node, readers: dict[Value, list[Node]], depth: int = 4) -> bool:
    """Whether a node, or one reached through ops that keep the weights, is a matrix product."""
    if node.op_type in ("MatMul", "Einsum", "Gemm"):
        return True
    passes = node.op_type in ("Cast", "CastLike", "Identity", "Dropout", "Reshape", "Where")
    after = [each for value in node.outputs if value is not None for each in readers.get(value, ())]
    return passes and depth > 0 and any(_multiplies(each, readers, depth - 1) for each in after)
