"""Blocked layout (NCHWc) of convolutions with computed kernels, as in training.

The runtime's optimizer applies it only to convolutions with constant kernels. In this layout channels are split into
blocks, whose size depends on the CPU, with the position in the block as innermost axis.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

import tenonnx_standard as ops
from tenonnx.extend import DType, Graph, Node, Op, TensorType, Value, op
from tenonnx.extend.formats import NodeProto
from tenonnx_onnxruntime.kernels import opened
from tenonnx_onnxruntime.session import RUNTIME_ERRORS

DOMAIN = "com.microsoft.nchwc"

#: Smaller kernels do not make up for reordering.
_SMALLEST = 1 << 10


@functools.cache
def block_size() -> int:
    """Channels per block on this machine; 0 if the runtime does not support the layout."""
    node = NodeProto(op_type="ReorderInput", domain=DOMAIN, input=["x"], output=["y"])
    x = np.arange(64, dtype=np.float32).reshape(1, 32, 1, 2)
    try:
        (y,) = opened(node, x.shape, {"ai.onnx": 13, DOMAIN: 1}, 7).run(None, {"x": x})
    except RUNTIME_ERRORS:
        return 0
    return int(np.argmax(np.asarray(y).reshape(-1) == 1))  # index of the first channel's second pixel


def in_blocks(graph: Graph) -> Graph:
    """``graph`` with the runtime's blocked convolutions where they are faster."""
    if not any(map(_may_be_kernel, graph.inputs)):
        return graph
    from tenonnx_optimize.canonicalize import canonicalize  # imported lazily: it imports much, and few graphs need it

    return canonicalize(graph, [layout(block_size()).convolution], at=_is_convolution_by_input)


def _may_be_kernel(x: Value) -> bool:
    """Whether kernels are suitable: float32, two spatial axes, and full blocks of input and output channels."""
    if not isinstance(x.type, TensorType) or x.type.dtype is not DType.float32 or x.type.rank != 4:
        return False
    sizes = [d for d in x.type.shape or () if isinstance(d, int)]
    large = len(sizes) == 4 and math.prod(sizes) >= _SMALLEST
    return large and block_size() > 0 and not any(d % block_size() for d in sizes[:2])


def _is_convolution_by_input(node: Node) -> bool:
    kernel = node.inputs[1] if node.op in (ops.conv, ops.conv_transpose) else None
    given = kernel is not None and kernel.producer is None and kernel.data is None
    return kernel is not None and given and _may_be_kernel(kernel)


class BlockedLayout(NamedTuple):
    """The runtime's reordering and convolution ops, and their composition, whose normal form is Conv."""

    reorder_input: Op
    reorder_output: Op
    conv: Op
    convolution: Op


@functools.cache
def layout(size: int) -> BlockedLayout:
    """The operators for blocks of ``size`` channels; all blocks are full."""

    @op("ReorderInput", domain=DOMAIN, type=lambda X: X.type)
    def reorder_input(X: Value) -> Any:
        reshaped = ops.reshape(X, [0, X.shape[1] // size, size, -1])
        return ops.reshape(ops.transpose(reshaped, perm=[0, 1, 3, 2]), ops.shape(X))

    @op("ReorderOutput", domain=DOMAIN, type=lambda X, channels: X.type)
    def reorder_output(X: Value, *, channels: int) -> Any:
        reshaped = ops.reshape(X, [0, channels // size, -1, size])
        return ops.reshape(ops.transpose(reshaped, perm=[0, 1, 3, 2]), ops.shape(X))

    @op("Conv", domain=DOMAIN, signature=ops.conv.signature, type=ops.conv.rules["type"])
    def conv(X: Value, W: Value, B: Value | None = None, **attributes: Any) -> Any:
        results, channels, *window = W.shape
        reshaped = ops.reshape(W, [results // size, channels // size, *window, size, size])
        kernels = ops.reshape(ops.transpose(reshaped, perm=[0, 5, 1, 4, 2, 3]), W.shape)
        return reorder_input(ops.conv(reorder_output(X, channels=channels), kernels, B, **attributes))

    @op("ConvInBlocks", domain=DOMAIN, signature=ops.conv.signature, type=ops.conv.rules["type"])
    def convolution(X: Value, W: Value, B: Value | None = None, **attributes: Any) -> Any:
        results, channels, *window = W.shape
        reshaped = ops.reshape(W, [results // size, size, channels // size, size, *window])
        innermost = ops.einsum(
            reshaped, equation="abcdef->acdefb"
        )  # five times faster than as part of the next Transpose
        # The runtime declares kernels in their unblocked shape.
        kernels = ops.reshape(ops.transpose(innermost, perm=[0, 1, 3, 4, 2, 5]), W.shape)
        return reorder_output(conv(reorder_input(X), kernels, B, **attributes), channels=results)

    @convolution.pattern
    def convolution_pattern(y: Value) -> Iterator[tuple[Sequence[Value | None], dict[str, Any]]]:
        node = y.producer
        if node is not None and node.op is ops.conv:
            attributes = {"group": 1, "auto_pad": "NOTSET", **node.attributes}
            if attributes["group"] == 1 and attributes["auto_pad"] == "NOTSET":
                yield node.inputs, attributes

    return BlockedLayout(reorder_input, reorder_output, conv, convolution)
