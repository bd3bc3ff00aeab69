"""Arithmetic, comparisons and functions element by element."""

from __future__ import annotations

from typing import Any

import numpy as np

import tenonnx_standard as ops
from tenonnx.extend import DType, same_type
from tenonnx_litert.builtins.builtin import activated, builtin

# ----- arithmetic -----------------------------------------------------------------------------------------------------


@builtin("ADD", "AddOptions")
def add(x, y, *, fused_activation_function="NONE", pot_scale_int16=0):
    """The sum; ``pot_scale_int16`` says whether scales of int16 values are powers of two."""
    return activated(x + y, fused_activation_function)


@builtin("SUB", "SubOptions")
def sub(x, y, *, fused_activation_function="NONE", pot_scale_int16=0):
    """The difference; ``pot_scale_int16`` says whether scales of int16 values are powers of two."""
    return activated(x - y, fused_activation_function)


@builtin("MUL", "MulOptions")
def mul(x, y, *, fused_activation_function="NONE"):
    return activated(x * y, fused_activation_function)


@builtin("DIV", "DivOptions")
def div(x, y, *, fused_activation_function="NONE"):
    """The quotient, truncated for integers."""
    return activated(x / y, fused_activation_function)


@builtin("FLOOR_DIV", "FloorDivOptions")
def floor_div(x, y):
    if x.dtype.is_float:
        return ops.floor(x / y)
    return (x - ops.mod(x, y)) / y


@builtin("FLOOR_MOD", "FloorModOptions")
def floor_mod(x, y):
    if x.dtype.is_float:
        return x - ops.floor(x / y) * y
    return ops.mod(x, y)


@builtin("MAXIMUM", "MaximumMinimumOptions")
def maximum(x, y):
    return ops.maximum(x, y)


@builtin("MINIMUM", "MaximumMinimumOptions")
def minimum(x, y):
    return ops.minimum(x, y)


@builtin("POW", "PowOptions")
def pow_(x, y):
    return ops.pow_(x, y)


@builtin("ATAN2", "ATan2Options")
def atan2(y, x):
    """The angle of the point (x, y)."""
    turn = ops.where(x < 0.0, ops.where(y < 0.0, -np.pi, np.pi), 0.0)
    return ops.where(ops.equal(x, 0.0), ops.sign(y) * (np.pi / 2), ops.atan(y / x) + turn)


@builtin("SQUARED_DIFFERENCE", "SquaredDifferenceOptions")
def squared_difference(x, y):
    return (x - y) * (x - y)


@builtin("PRELU")
def prelu(input, alpha):
    return ops.where(input < 0.0, input * alpha, input)


@builtin("SELECT_V2", "SelectV2Options")
def select_v2(condition, x, y):
    return ops.where(condition, x, y)


# ----- comparisons ----------------------------------------------------------------------------------------------------


@builtin("EQUAL", "EqualOptions")
def equal(x, y):
    return ops.equal(x, y)


@builtin("NOT_EQUAL", "NotEqualOptions")
def not_equal(x, y):
    return ops.not_(ops.equal(x, y))


@builtin("LESS", "LessOptions")
def less(x, y):
    return ops.less(x, y)


@builtin("LESS_EQUAL", "LessEqualOptions")
def less_equal(x, y):
    return ops.less_or_equal(x, y)


@builtin("GREATER", "GreaterOptions")
def greater(x, y):
    return ops.greater(x, y)


@builtin("GREATER_EQUAL", "GreaterEqualOptions")
def greater_equal(x, y):
    return ops.greater_or_equal(x, y)


@builtin("LOGICAL_AND", "LogicalAndOptions")
def logical_and(x, y):
    return ops.and_(x, y)


@builtin("LOGICAL_OR", "LogicalOrOptions")
def logical_or(x, y):
    return ops.or_(x, y)


@builtin("LOGICAL_NOT", "LogicalNotOptions")
def logical_not(x):
    return ops.not_(x)


@builtin("BITWISE_XOR", "BitwiseXorOptions")
def bitwise_xor(x, y):
    return ops.bitwise_xor(x, y)


# ----- functions ------------------------------------------------------------------------------------------------------


@builtin("ABS", "AbsOptions")
def absolute(x):
    return ops.absolute(x)


@builtin("NEG", "NegOptions")
def neg(x):
    return -x


@builtin("SIGN", "SignOptions")
def sign(x):
    return ops.sign(x)


@builtin("EXP", "ExpOptions")
def exp(x):
    return ops.exp(x)


@builtin("LOG")
def log(x):
    return ops.log(x)


@builtin("SQRT")
def sqrt(x):
    return ops.sqrt(x)


@builtin("RSQRT")
def rsqrt(x):
    return ops.reciprocal(ops.sqrt(x))


@builtin("SQUARE", "SquareOptions")
def square(x):
    return x * x


@builtin("SIN")
def sin(x):
    return ops.sin(x)


@builtin("COS", "CosOptions")
def cos(x):
    return ops.cos(x)


@builtin("FLOOR")
def floor(x):
    return ops.floor(x)


@builtin("CEIL")
def ceil(x):
    return ops.ceil(x)


@builtin("ROUND")
def round_(x):
    """The nearest integer, ties to even."""
    return ops.round_(x)


@builtin("CAST", "CastOptions")
def cast(x, *, out_data_type: str):
    return ops.cast(x, to=DType[out_data_type])


# ----- activations ----------------------------------------------------------------------------------------------------


@builtin("RELU")
def relu(x):
    return ops.relu(x)


@builtin("RELU6")
def relu6(x):
    return activated(x, "RELU6")


@builtin("RELU_N1_TO_1")
def relu_n1_to_1(x):
    return activated(x, "RELU_N1_TO_1")


@builtin("RELU_0_TO_1")
def relu_0_to_1(x):
    return ops.clip(x, 0.0, 1.0)


@builtin("TANH")
def tanh(x):
    return ops.tanh(x)


@builtin("LOGISTIC")
def logistic(x):
    return ops.sigmoid(x)


@builtin("ELU")
def elu(x):
    return ops.elu(x)


@builtin("LEAKY_RELU", "LeakyReluOptions")
def leaky_relu(x, *, alpha=0.0):
    return ops.leaky_relu(x, alpha=alpha)


@builtin("HARD_SWISH")
def hard_swish(x):
    return x * ops.clip(x + 3.0, 0.0, 6.0) / 6.0


@builtin("GELU", "GeluOptions")
def gelu(x, *, approximate=0):
    return ops.gelu(x, approximate="tanh" if approximate else "none")


@builtin("SOFTMAX", "SoftmaxOptions")
def softmax(logits, *, beta=1.0):
    return ops.softmax(logits if beta == 1.0 else logits * beta, axis=-1)


@builtin("LOG_SOFTMAX", "LogSoftmaxOptions")
def log_softmax(logits):
    return ops.log_softmax(logits, axis=-1)


def _keep_types(*builtins: Any) -> None:
    for each in builtins:
        each.type(same_type)


_keep_types(absolute, neg, sign, exp, log, sqrt, rsqrt, square, sin, cos, floor, ceil, round_)
_keep_types(relu, relu6, relu_n1_to_1, relu_0_to_1, tanh, logistic, elu, leaky_relu, hard_swish, gelu)
_keep_types(softmax, log_softmax)
