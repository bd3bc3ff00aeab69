"""Weights of matrix products in the 4-bit normal float (NF4) of bitsandbytes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

import tenonnx as tx
import tenonnx_standard as ops
from tenonnx.extend import DType, Graph, InvalidCall, Value
from tenonnx.extend.transforms import Call, Rewriter, prune

#: Weights per block, as in bitsandbytes and in the quantizer of transformers.js.
BLOCK = 64


def with_nf4_weights(graph: Graph) -> Graph:
    """Return a graph with com.microsoft::MatMulBnb4 for products with constant weights in float32.

    Embeddings and norms stay float32. Raises ``InvalidCall`` if there is no such product.
    """
    rewrite = _Rewrite()
    lowered = prune(Rewriter(graph, rewrite.decide).run())
    if not rewrite.count:
        raise InvalidCall("no weights to quantize: the graph has no product with constant weights in float32")
    return tx.simplify(lowered)


class _Rewrite:
    """Rewrite of products with constant weights; ``count`` is their number."""

    def __init__(self) -> None:
        self.count = 0
        self.variables: dict[str, tuple[Value, Value]] = {}

    def decide(self, rewriter: Rewriter, call: Call) -> Sequence[Value | None] | None:
        from tenonnx_quantized.fourbit import matmul_bnb4

        if call.node is None or call.op not in (ops.matmul, ops.gemm):
            return None
        weights = _weights(call)
        if weights is None:
            return None
        self.count += 1
        name, array = weights
        if name not in self.variables:
            packed, largest = quantized(np.ascontiguousarray(array.T))
            graph = rewriter.graph
            self.variables[name] = graph.variable(f"{name}/nf4", packed), graph.variable(f"{name}/absmax", largest)
        rows, columns = array.shape
        product: Any = matmul_bnb4
        y = product(call.inputs[0], *self.variables[name], K=rows, N=columns, block_size=BLOCK, quant_type=1)
        bias = call.inputs[2] if len(call.inputs) > 2 else None
        return [y if bias is None else ops.add(y, bias)]


def _weights(call: Call) -> tuple[str, np.ndarray[Any, Any]] | None:
    """Name and array of the constant weights of a product, float32 of shape (inputs, outputs); None for others."""
    node: Any = call.node
    value, transposed = node.inputs[1], False
    if value.producer is not None and value.producer.op is ops.transpose:
        value, transposed = value.producer.inputs[0], True
    plain = {"alpha": 1.0, "beta": 1.0, "transA": 0}
    if any(call.attributes.get(name, usual) != usual for name, usual in plain.items()):
        return None
    if not value.is_constant or value.rank != 2 or value.dtype is not DType.float32:
        return None
    array = value.data.array()
    return value.name, array.T if transposed != bool(call.attributes.get("transB", 0)) else array


def quantized(weights: np.ndarray[Any, Any]) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Quantize float32 weights of shape (outputs, inputs).

    Return two values per byte, the first in its high half, uint8 of shape (ceil(size / 2),), and the largest magnitude
    of each block, float32 of shape (ceil(size / 64),).
    """
    from tenonnx_quantized.formats import NF4

    table = np.asarray(NF4, np.float32)
    flat = np.pad(weights.reshape(-1), (0, -weights.size % BLOCK)).reshape(-1, BLOCK)
    largest = np.abs(flat).max(1)
    scaled = flat / np.where(largest == 0, 1, largest)[:, None]
    places = np.searchsorted((table[1:] + table[:-1]) / 2, scaled).astype(np.uint8).reshape(-1)[: weights.size]
    places = np.pad(places, (0, places.size % 2))
    return places[::2] << 4 | places[1::2], largest.astype(np.float32)
