"""Elementwise and softmax QLinear ops, QLinearWhere and QLinearConcat."""

from __future__ import annotations

import numpy as np

import tenonnx_standard as ops
from tenonnx.extend import REQUIRED, dtypes, holds, op, shapes, static
from tenonnx_quantized.qlinear import dequantized, qlinear, requantized


@qlinear("QLinearAdd", ops.add)
def qlinear_add(
    A, A_scale, A_zero_point=None, B=REQUIRED, B_scale=REQUIRED, B_zero_point=None, C_scale=REQUIRED, C_zero_point=None
):
    """A + B.

    With infinite scales, sums are infinite or NaN; onnxruntime's kernel returns the lowest quantized value.
    """
    return A + B


@qlinear("QLinearMul", ops.mul)
def qlinear_mul(
    A, A_scale, A_zero_point=None, B=REQUIRED, B_scale=REQUIRED, B_zero_point=None, C_scale=REQUIRED, C_zero_point=None
):
    """A * B, with infinite scales as in QLinearAdd."""
    return A * B


@qlinear("QLinearSigmoid", ops.sigmoid)
def qlinear_sigmoid(X, X_scale, X_zero_point=None, Y_scale=REQUIRED, Y_zero_point=None):
    """The logistic function."""
    return ops.sigmoid(X)


@qlinear("QLinearLeakyRelu", ops.leaky_relu)
def qlinear_leaky_relu(X, X_scale, X_zero_point=None, Y_scale=REQUIRED, Y_zero_point=None, *, alpha=0.01):
    """``X`` with its negative elements scaled by ``alpha``."""
    return ops.leaky_relu(X, alpha=alpha)


def _whole(scale):
    """Truncate the reciprocal of a scale to an integer, as onnxruntime's kernel does."""
    contents = static(scale)
    with np.errstate(all="ignore"):
        exact = contents is not None and np.all(np.floor(1 / contents) == 1 / contents)
    return scale if exact else 1.0 / ops.floor(1.0 / scale)


@qlinear("QLinearSoftmax", step=_whole)
def qlinear_softmax(X, X_scale, x_zero_point=None, y_scale=REQUIRED, y_zero_point=REQUIRED, *, axis=-1, opset: int):
    """Softmax of ai.onnx at version ``opset``: below 13 over all axes from ``axis`` on.

    ``1 / y_scale`` is truncated to an integer, as in onnxruntime.
    """
    return ops.softmax(X, axis=axis) if opset >= 13 else ops.softmax_2d(X, axis=axis)


@qlinear("QLinearWhere", ops.where)
def qlinear_where(condition, X, x_scale, x_zero_point, Y, y_scale, y_zero_point, z_scale, z_zero_point):
    """``X`` where ``condition`` is true, else ``Y``."""
    return ops.where(condition, X, Y)


@op("QLinearConcat", domain="com.microsoft")
def qlinear_concat(Y_scale, Y_zero_point, *inputs, axis: int):
    """Concatenate tensors along ``axis``; each is given by quantized values, scale and zero point."""
    floats = [dequantized(*inputs[k : k + 3]) for k in range(0, len(inputs), 3)]
    return requantized(ops.concat(*floats, axis=axis), Y_scale, Y_zero_point, Y_zero_point)


def _triples(inputs):
    """Require operands of 8-bit quantized values, each with a scale and a zero point of its type."""
    if not inputs or len(inputs) % 3:
        return "the inputs after the first two are not triples of quantized tensor, scale and zero point"
    for quantized, _, zero_point in zip(*(inputs[k::3] for k in range(3)), strict=True):
        if quantized.dtype.name not in _EIGHT_BITS or zero_point.dtype is not quantized.dtype:
            return "a quantized tensor of inputs is not int8 or uint8 with a zero point of the same dtype"
    return None


_EIGHT_BITS = ("int8", "uint8")

qlinear_concat.requires(
    dtypes(Y_scale="float32", Y_zero_point="int8 uint8"),
    shapes(Y_scale="|1", Y_zero_point="|1"),
    holds(_triples),
)
