"""Elementwise arithmetic, comparisons and functions."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

import tenonnx_standard as ops
from tenonnx.extend import DType, NotRepresentable, Value, constant
from tenonnx_frontends import bits, numerics
from tenonnx_tensorflow.attributes import dtype_of, is_complex
from tenonnx_tensorflow.rules import rule
from tenonnx_tensorflow.tracked_values import Complex, as_dtype, by_wider, number, where

_UNARY: dict[str, Any] = {
    "Abs": ops.absolute,
    "Acos": ops.acos,
    "Acosh": ops.acosh,
    "Asin": ops.asin,
    "Asinh": ops.asinh,
    "Atan": ops.atan,
    "Atanh": ops.atanh,
    "Ceil": ops.ceil,
    "Cos": ops.cos,
    "Cosh": ops.cosh,
    "Erf": ops.erf,
    "Exp": ops.exp,
    "Floor": ops.floor,
    "Inv": ops.reciprocal,
    "IsNan": ops.isnan,
    "IsInf": ops.isinf,
    "Log": ops.log,
    "LogicalNot": ops.not_,
    "Neg": ops.neg,
    "Reciprocal": ops.reciprocal,
    "Relu": ops.relu,
    "Rint": ops.round_,
    "Sigmoid": ops.sigmoid,
    "Sin": ops.sin,
    "Sinh": ops.sinh,
    "Softplus": ops.softplus,
    "Softsign": ops.softsign,
    "Sqrt": ops.sqrt,
    "Tan": ops.tan,
    "Tanh": ops.tanh,
    "Invert": ops.bitwise_not,
}

_BINARY: dict[str, Any] = {
    "Add": ops.add,
    "AddV2": ops.add,
    "Div": ops.div,
    "Greater": ops.greater,
    "GreaterEqual": ops.greater_or_equal,
    "Less": ops.less,
    "LessEqual": ops.less_or_equal,
    "LogicalAnd": ops.and_,
    "LogicalOr": ops.or_,
    "Mul": ops.mul,
    "RealDiv": ops.div,
    "Sub": ops.sub,
    "TruncateDiv": ops.div,
    "BitwiseAnd": ops.bitwise_and,
    "BitwiseOr": ops.bitwise_or,
    "BitwiseXor": ops.bitwise_xor,
}


def _register(table: dict[str, Callable[..., Value]], arity: int) -> None:
    for name, op in table.items():
        if arity == 1:
            rule(name)(lambda node, x, op=op: op(x))
        else:
            rule(name)(lambda node, x, y, op=op: op(x, y))


_register(_UNARY, 1)
_register(_BINARY, 2)


@rule("Add", "AddV2")
def add(node: Any, x: Value, y: Value) -> Value:
    return ops.string_concat(x, y) if x.dtype is DType.string else ops.add(x, y)


@rule(
    "Identity",
    "StopGradient",
    "PreventGradient",
    "CheckNumerics",
    "Snapshot",
    "EnsureShape",
    "DisableCopyOnRead",
    "PlaceholderWithDefault",
    "Print",
    "DebugIdentity",
    "DebugIdentityV2",
    "DebugIdentityV3",
    "OptionalGetValue",
)
def identity(node: Any, x: Any, *_: Any) -> Any:
    return x


@rule("Maximum", "Minimum")
def extreme(node: Any, x: Value, y: Value) -> Value:
    return by_wider(ops.maximum if node.op == "Maximum" else ops.minimum, x, y)


@rule("IdentityN", "ReadVariablesOp")
def identities(node: Any, *values: Any) -> list[Any]:
    return list(values)


@rule("NoOp", "Assert", "PrintV2", "ControlTrigger")
def nothing(node: Any, *_: Any) -> list[Any]:
    return []


@rule("AddN", "AccumulateNV2")
def add_all(node: Any, *values: Value) -> Value:
    return ops.sum_(*values) if len(values) > 1 else values[0]


@rule("Equal", "NotEqual")
def equal(node: Any, x: Value, y: Value) -> Value:
    result = ops.equal(x, y)
    return result if node.op == "Equal" else ops.not_(result)


@rule("ApproximateEqual")
def approximate_equal(node: Any, x: Value, y: Value) -> Value:
    return ops.less(ops.absolute(ops.sub(x, y)), number(node.get("tolerance", 1e-5), x))


@rule("LogicalXor")
def logical_xor(node: Any, x: Value, y: Value) -> Value:
    return ops.xor(x, y)


@rule("IsFinite")
def is_finite(node: Any, x: Value) -> Value:
    return ops.not_(ops.or_(ops.isnan(x), ops.isinf(x)))


@rule("Cast")
def cast(node: Any, x: Any) -> Any:
    """Cast: floats are truncated to integers, and nonzero numbers are true."""
    target = dtype_of(node["DstT"])
    if is_complex(node["DstT"]):
        real = as_dtype(x, target)
        return Complex(real, ops.zeros_like(real))
    if x.dtype is DType.string or target is DType.string:
        raise NotRepresentable("a cast is not between numbers", given=f"{x.dtype.name} to {target.name}")
    return as_dtype(x, target)


@rule("Square")
def square(node: Any, x: Value) -> Value:
    return ops.mul(x, x)


@rule("SquaredDifference")
def squared_difference(node: Any, x: Value, y: Value) -> Value:
    difference = ops.sub(x, y)
    return ops.mul(difference, difference)


@rule("Rsqrt")
def rsqrt(node: Any, x: Value) -> Value:
    return ops.reciprocal(ops.sqrt(x))


@rule("Sign")
def sign(node: Any, x: Value) -> Value:
    return ops.sign(x)


@rule("Round")
def round_(node: Any, x: Value) -> Value:
    return ops.round_(x) if x.dtype.numpy.kind != "i" else x


@rule("Pow")
def power(node: Any, x: Value, y: Value) -> Value:
    return ops.pow_(x, y)


@rule("Log1p")
def log1p(node: Any, x: Value) -> Value:
    return numerics.log1p(x)


@rule("Expm1")
def expm1(node: Any, x: Value) -> Value:
    return numerics.expm1(x)


@rule("FloorDiv")
def floor_div(node: Any, x: Value, y: Value) -> Value:
    kind = x.dtype.numpy.kind
    if kind == "u":
        return ops.div(x, y)
    if kind != "i":
        return ops.floor(ops.div(x, y))
    # truncation is one too large for a nonzero remainder and different signs
    quotient = ops.div(x, y)
    rest = ops.sub(x, ops.mul(quotient, y))
    zero = number(0, x)
    apart = ops.and_(ops.not_(ops.equal(rest, zero)), ops.xor(ops.less(rest, zero), ops.less(y, zero)))
    return ops.sub(quotient, ops.cast(apart, to=x.dtype))


@rule("FloorMod")
def floor_mod(node: Any, x: Value, y: Value) -> Value:
    if x.dtype.numpy.kind in "iu":
        return ops.mod(x, y)
    rest = ops.mod(x, y, fmod=1)
    zero = number(0, x)
    apart = ops.and_(ops.not_(ops.equal(rest, zero)), ops.xor(ops.less(rest, zero), ops.less(y, zero)))
    return ops.where(apart, ops.add(rest, y), rest)


@rule("Mod", "TruncateMod")
def truncate_mod(node: Any, x: Value, y: Value) -> Value:
    return ops.mod(x, y, fmod=1)


def _where_zero(x: Value, result: Value) -> Value:
    """Zero where ``x`` is zero, else ``result``."""
    return ops.where(ops.equal(x, number(0, x)), ops.zeros_like(result), result)


@rule("DivNoNan")
def div_no_nan(node: Any, x: Value, y: Value) -> Value:
    return _where_zero(y, ops.div(x, y))


@rule("MulNoNan")
def mul_no_nan(node: Any, x: Value, y: Value) -> Value:
    return _where_zero(y, ops.mul(x, y))


@rule("Xlogy")
def xlogy(node: Any, x: Value, y: Value) -> Value:
    return _where_zero(x, ops.mul(x, ops.log(y)))


@rule("Xlog1py")
def xlog1py(node: Any, x: Value, y: Value) -> Value:
    return _where_zero(x, ops.mul(x, log1p(node, y)))


@rule("Xdivy")
def xdivy(node: Any, x: Value, y: Value) -> Value:
    return _where_zero(x, ops.div(x, y))


@rule("Atan2")
def atan2(node: Any, y: Value, x: Value) -> Value:
    """The angle of a point: relative to the nearer axis, then by quadrant, with the sign of ``y`` even for zeros."""
    zero, one, pi = number(0, x), number(1, x), number(math.pi, x)
    tall = ops.greater(ops.absolute(y), ops.absolute(x))
    below, above = ops.where(tall, y, x), ops.where(tall, x, y)
    none = ops.equal(below, zero)
    infinite = ops.and_(ops.isinf(x), ops.isinf(y))
    signs = ops.where(ops.less(ops.mul(ops.sign(x), ops.sign(y)), zero), ops.neg(one), one)
    ratio = ops.where(infinite, signs, ops.div(above, ops.where(none, one, below)))
    angle = ops.atan(ratio)
    steep = ops.sub(ops.where(ops.less(y, zero), number(-math.pi / 2, x), number(math.pi / 2, x)), angle)
    is_left = ops.or_(ops.less(x, zero), ops.less(ops.reciprocal(x), zero))
    is_below = ops.or_(ops.less(y, zero), ops.less(ops.reciprocal(y), zero))
    turn = ops.where(is_left, ops.where(is_below, ops.neg(pi), pi), zero)
    flat = ops.add(angle, turn)
    return ops.where(ops.and_(tall, ops.not_(infinite)), steep, flat)


@rule("Erfc")
def erfc(node: Any, x: Value) -> Value:
    return numerics.erfc(x)


@rule("Erfinv")
def erfinv(node: Any, x: Value) -> Value:
    return numerics.erfinv(x)


@rule("Ndtri")
def ndtri(node: Any, x: Value) -> Value:
    return numerics.ndtri(x)


@rule("LeftShift", "RightShift")
def shift(node: Any, x: Value, y: Value) -> Value:
    """Shift by an amount clamped to the range 0 to bits - 1; right shifts are arithmetic."""
    kind, last = x.dtype.numpy, 8 * x.dtype.numpy.itemsize - 1
    y = by_wider(ops.clip, y, number(0, y), number(last, y))
    if kind.kind == "u":
        direction = "LEFT" if node.op == "LeftShift" else "RIGHT"
        return by_wider(lambda x, y: ops.bitshift(x, y, direction=direction), x, y)
    if node.op == "LeftShift":
        return by_wider(lambda x, y: ops.mul(x, ops.pow_(number(2, y), y)), x, y)
    widened, places = as_dtype(x, DType.int64), as_dtype(y, DType.int64)
    found = floor_div(node, widened, ops.pow_(constant(np.asarray(2)), ops.minimum(places, constant(np.asarray(62)))))
    if last == 63:  # 2 ** 63 exceeds this type
        sign = ops.neg(ops.cast(ops.less(widened, constant(np.asarray(0))), to=DType.int64))
        found = ops.where(ops.greater(places, constant(np.asarray(62))), sign, found)
    return as_dtype(found, x.dtype)


@rule("Bitcast")
def bitcast(node: Any, x: Value) -> Value:
    target = dtype_of(node["type"])
    if target.numpy.itemsize != x.dtype.numpy.itemsize:
        raise NotRepresentable(
            "a bitcast is between types of different widths", given=f"{x.dtype.name} to {target.name}"
        )
    known = all(each.is_integer or each in bits.FORMATS for each in (x.dtype, target))
    return bits.bitcast(x, target) if known else ops.bitcast(x, to=target)


# ----- activations ----------------------------------------------------------------------------------------------------


@rule("Relu6")
def relu6(node: Any, x: Value) -> Value:
    return ops.clip(x, number(0, x), number(6, x))


@rule("LeakyRelu")
def leaky_relu(node: Any, x: Value) -> Value:
    return ops.leaky_relu(x, alpha=node.get("alpha", 0.2))


@rule("Elu")
def elu(node: Any, x: Value) -> Value:
    return ops.elu(x)


@rule("Selu")
def selu(node: Any, x: Value) -> Value:
    if x.dtype is not DType.float64:
        return ops.selu(x)
    scale = 1.0507009873554804934193349852946  # ONNX stores both factors as float32
    negative = ops.mul(number(1.7580993408473768599402175208123, x), ops.sub(ops.exp(x), number(1, x)))
    return ops.where(ops.less(x, number(0, x)), negative, ops.mul(number(scale, x), x))


@rule("ClipByValue")
def clip_by_value(node: Any, x: Value, low: Value, high: Value) -> Value:
    if low.rank == 0 and high.rank == 0:
        return ops.clip(x, low, high)
    return ops.minimum(ops.maximum(x, low), high)


@rule("Softmax", "LogSoftmax")
def softmax(node: Any, x: Value) -> Value:
    return (ops.softmax if node.op == "Softmax" else ops.log_softmax)(x, axis=-1)


@rule("_FusedBatchNormEx")
def unfused(node: Any, *_: Value) -> Value:
    raise NotRepresentable("the graph was written by TensorFlow's optimizer", given=node.title)


@rule("Select", "SelectV2")
def select(node: Any, condition: Value, x: Value, y: Value) -> Value:
    """Select elements; the first version also accepts a vector as the condition on rows."""
    if node.op == "Select" and condition.rank == 1 and (x.rank or 0) > 1:
        condition = ops.unsqueeze(condition, list(range(1, x.ndim)))
    return where(condition, x, y)


# ----- special functions ----------------------------------------------------------------------------------------------
