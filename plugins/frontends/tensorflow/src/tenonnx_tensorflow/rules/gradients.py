"""Gradient ops that TensorFlow writes into a graph, for instance by ``tf.gradients``."""

from __future__ import annotations

from typing import Any

import numpy as np

import tenonnx_standard as ops
from tenonnx.extend import NotRepresentable, Value, constant, static
from tenonnx_tensorflow.rules import rule
from tenonnx_tensorflow.tracked_values import known, number


@rule("TanhGrad")
def tanh(node: Any, y: Value, slope: Value) -> Value:
    return ops.mul(slope, ops.sub(number(1, y), ops.mul(y, y)))


@rule("SigmoidGrad")
def sigmoid(node: Any, y: Value, slope: Value) -> Value:
    return ops.mul(slope, ops.mul(y, ops.sub(number(1, y), y)))


@rule("SqrtGrad")
def sqrt(node: Any, y: Value, slope: Value) -> Value:
    return ops.div(ops.mul(slope, number(0.5, y)), y)


@rule("RsqrtGrad")
def rsqrt(node: Any, y: Value, slope: Value) -> Value:
    return ops.mul(ops.mul(slope, number(-0.5, y)), ops.mul(y, ops.mul(y, y)))


@rule("InvGrad", "ReciprocalGrad")
def reciprocal(node: Any, y: Value, slope: Value) -> Value:
    return ops.neg(ops.mul(slope, ops.mul(y, y)))


def _where_positive(x: Value, slope: Value, otherwise: Value) -> Value:
    return ops.where(ops.greater(x, number(0, x)), slope, otherwise)


@rule("ReluGrad")
def relu(node: Any, slope: Value, x: Value) -> Value:
    return _where_positive(x, slope, number(0, slope))


@rule("Relu6Grad")
def relu6(node: Any, slope: Value, x: Value) -> Value:
    inside = ops.and_(ops.greater(x, number(0, x)), ops.less(x, number(6, x)))
    return ops.where(inside, slope, number(0, slope))


@rule("LeakyReluGrad")
def leaky_relu(node: Any, slope: Value, x: Value) -> Value:
    return _where_positive(x, slope, ops.mul(slope, number(node.get("alpha", 0.2), slope)))


@rule("EluGrad")
def elu(node: Any, slope: Value, y: Value) -> Value:
    return ops.where(ops.less(y, number(0, y)), ops.mul(slope, ops.add(y, number(1, y))), slope)


@rule("SeluGrad")
def selu(node: Any, slope: Value, y: Value) -> Value:
    scale, alpha = number(1.0507009873554805, y), number(1.7580993408473766, y)
    return ops.where(ops.less(y, number(0, y)), ops.mul(slope, ops.add(y, alpha)), ops.mul(slope, scale))


@rule("SoftplusGrad")
def softplus(node: Any, slope: Value, x: Value) -> Value:
    return ops.mul(slope, ops.sigmoid(x))


@rule("SoftsignGrad")
def softsign(node: Any, slope: Value, x: Value) -> Value:
    size = ops.add(ops.absolute(x), number(1, x))
    return ops.div(slope, ops.mul(size, size))


@rule("BiasAddGrad")
def bias_add(node: Any, slope: Value) -> Value:
    channel = 1 if node.get("data_format", "NHWC").startswith("NC") else slope.ndim - 1
    return ops.reduce_sum(slope, [k for k in range(slope.ndim) if k != channel], keepdims=0)


def _sizes(shape: Value) -> list[Any]:
    """Known sizes as numbers, and names of unknown ones."""
    if static(shape) is None and shape.symbolic_contents is not None:
        return list(shape.symbolic_contents)
    return [int(n) for n in known(shape, "a shape that was broadcast")]


@rule("BroadcastGradientArgs", outputs="r0 r1")
def reduced_axes(node: Any, first: Value, second: Value) -> list[Value]:
    """The axes along which each of two shapes was broadcast; an unknown size may be equal in both."""
    shapes = [_sizes(value) for value in (first, second)]
    rank = max(map(len, shapes))
    padded = [[1] * (rank - len(shape)) + shape for shape in shapes]
    for pair in zip(*padded, strict=True):
        if pair[0] != pair[1] and 1 not in pair:
            raise NotRepresentable(
                "cannot determine which of two sizes was repeated",
                given=" and ".join(map(str, pair)),
                do="give fixed sizes to the inputs (dims=, or a signature with sizes), or one name to both (dims=)",
            )
    kind = first.dtype.numpy
    return [
        constant(
            np.asarray([k for k in range(rank) if mine[k] == 1 and not (other[k] == 1 and rank == len(shape))], kind)
        )
        for mine, other, shape in zip(padded, reversed(padded), shapes, strict=True)
    ]
