"""Fusion of activations, biases, transposes and reshapes into builtin operators."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tenonnx.extend import Graph, Node, Value, constant, static
from tenonnx.extend.transforms import Call, Rewriter, prune
from tenonnx_litert.builtins import elementwise, movement, neural, volumes
from tenonnx_litert.builtins.quantization import dequantize
from tenonnx_litert.integers import dequantized

#: Operators with a fused activation, and the activations that their kernels support.
_WITH_ACTIVATION = frozenset(
    {
        elementwise.add,
        elementwise.sub,
        elementwise.mul,
        elementwise.div,
        neural.conv_2d,
        neural.depthwise_conv_2d,
        neural.fully_connected,
        neural.average_pool_2d,
        neural.max_pool_2d,
        volumes.conv_3d,
    }
)
_ACTIVATIONS = {elementwise.relu: "RELU", elementwise.relu6: "RELU6", elementwise.relu_n1_to_1: "RELU_N1_TO_1"}

#: Operators with a bias as third input.
_WITH_BIAS = frozenset({neural.conv_2d, neural.depthwise_conv_2d, neural.fully_connected, volumes.conv_3d})

#: Maximum number of passes.
_PASSES = 3


def fused(graph: Graph) -> Graph:
    """``graph`` of builtin operators, with fused activations, biases, transposes and reshapes."""
    for _ in range(_PASSES):
        before = [node.op for node in graph.nodes]
        graph = prune(Rewriter(graph, _fuse).run())
        if [node.op for node in graph.nodes] == before:
            break
    return graph


def _fuse(rewriter: Rewriter, call: Call) -> Sequence[Value | None] | None:
    """Fuse a call into the operator that produces its input; None if it cannot be fused."""
    rule = _RULES.get(call.op)
    return None if rule is None or call.node is None else rule(rewriter, call)


def _only(rewriter: Rewriter, call: Call, position: int) -> Node | None:
    """The producer of an input, if the input has no other consumer."""
    assert call.node is not None
    source = call.node.inputs[position]
    value = call.inputs[position]
    if source is None or value is None or value.producer is None:
        return None
    if source in rewriter.source.outputs or len(rewriter.readers.get(source, ())) != 1:
        return None
    return value.producer if call.node.inputs.count(source) == 1 else None


def _again(node: Node, *inputs: Value | None, **attributes: Any) -> Sequence[Value | None]:
    """Apply the operator of a node to other inputs or attributes."""
    result = node.op(*(inputs or node.inputs), **{**node.attributes, **attributes})  # type: ignore[operator]
    return (result,)


def _activation(rewriter: Rewriter, call: Call) -> Sequence[Value | None] | None:
    node = _only(rewriter, call, 0)
    if node is not None and node.op in (movement.transpose, movement.reshape):
        x = node.inputs[0]
        behind = x is not None and x.producer is not None and x.producer.op in _WITH_ACTIVATION
        return (node.op(call.op(x), *node.inputs[1:], **node.attributes),) if behind else None  # type: ignore[operator]
    if node is None or node.op not in _WITH_ACTIVATION:
        return None
    if node.attributes.get("fused_activation_function", "NONE") != "NONE":
        return None
    return _again(node, fused_activation_function=_ACTIVATIONS[call.op])


def _bias(rewriter: Rewriter, call: Call) -> Sequence[Value | None] | None:
    for position in (0, 1):
        node, other = _only(rewriter, call, position), call.inputs[1 - position]
        contents = None if other is None else _contents(other)
        if node is None or node.op not in _WITH_BIAS or contents is None or call.inputs[0].dtype.name != "float32":
            continue
        known = None if len(node.inputs) < 3 or node.inputs[2] is None else static(node.inputs[2])
        value = call.inputs[position]
        count = value.shape[-1] if value is not None and value.shape else None
        fits = contents.size == count and contents.shape[-1] == count and contents.ndim <= len(value.shape)  # type: ignore[union-attr]
        idle = node.attributes.get("fused_activation_function", "NONE") == "NONE"
        if not fits or not idle or (known is None and len(node.inputs) > 2 and node.inputs[2] is not None):
            continue
        if known is None:
            total = other if contents.ndim == 1 else movement.reshape(other, constant(np.int32([count])))
        else:
            total = constant(np.ascontiguousarray(contents.reshape(-1) + known))
        attributes = {"fused_activation_function": call.attributes["fused_activation_function"]}
        return _again(node, node.inputs[0], node.inputs[1], total, **attributes)
    return None


def _contents(value: Value) -> Any:
    """Static contents, also of dequantized constants."""
    pair = dequantized(value)
    if pair is None or not pair[0].is_constant:
        return static(value)
    scale, zero_point = pair[1].arrays
    return (np.asarray(static(pair[0]), np.int64) - zero_point) * scale


def _adjoint(rewriter: Rewriter, call: Call) -> Sequence[Value | None] | None:
    for position, name in ((1, "adj_y"), (0, "adj_x")):
        node = _only(rewriter, call, position)
        scaled = node if node is not None and node.op is dequantize else None
        if scaled is not None and scaled.inputs[1].ndim == 0:  # type: ignore[union-attr]
            node = scaled.inputs[0].producer  # type: ignore[union-attr]
        if node is None or node.op is not movement.transpose or call.attributes[name]:
            continue
        order = static(node.inputs[1])  # type: ignore[arg-type]
        rank = len(order) if order is not None else 0
        if order is not None and list(order) == [*range(rank - 2), rank - 1, rank - 2]:
            inputs = list(call.inputs)
            x = node.inputs[0]
            inputs[position] = x if scaled is None else dequantize(x, *scaled.inputs[1:])
            return (neural.batch_matmul(*inputs, **{**call.attributes, name: 1}),)
    return None


def _reshape(rewriter: Rewriter, call: Call) -> Sequence[Value | None] | None:
    assert call.node is not None
    x, shape = call.inputs
    assert x is not None
    assert shape is not None
    target = static(shape)
    if target is None:
        return None
    is_output = call.node.outputs[0] in rewriter.source.outputs
    kind = call.known[0].type if call.known[0] is not None else None
    dims = getattr(kind, "shape", None)
    if not is_output and dims is not None and None not in dims and x.shape is not None and list(dims) == list(x.shape):
        return (x,)
    node = x.producer
    if node is not None and node.op is movement.reshape and (target > 0).sum() >= len(target) - 1 and 0 not in target:
        return (movement.reshape(node.inputs[0], shape),)
    return None


def _transpose(rewriter: Rewriter, call: Call) -> Sequence[Value | None] | None:
    assert call.node is not None
    x, perm = call.inputs
    node = None if x is None else x.producer
    order = static(perm)  # type: ignore[arg-type]
    if node is None or node.op is not movement.transpose or order is None:
        return None
    before = static(node.inputs[1])  # type: ignore[arg-type]
    if before is None:
        return None
    both = before[order]
    if list(both) == sorted(both) and call.node.outputs[0] not in rewriter.source.outputs:
        return (node.inputs[0],)
    return (movement.transpose(node.inputs[0], constant(both.astype(np.int32))),)


_RULES: dict[Any, Callable[[Rewriter, Call], Sequence[Value | None] | None]] = {
    **dict.fromkeys(_ACTIVATIONS, _activation),
    elementwise.add: _bias,
    neural.batch_matmul: _adjoint,
    movement.reshape: _reshape,
    movement.transpose: _transpose,
}
