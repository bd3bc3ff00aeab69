"""Arithmetic, comparisons and functions of single elements."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

import tenonnx_standard as ops
from tenonnx.extend import DType, NotRepresentable, Value, constant
from tenonnx_frontends.special_functions import (
    ERFC_ABOVE,
    ERFC_BELOW,
    ERFC_FAR_ABOVE,
    ERFC_FAR_BELOW,
    ERFINV_FAR,
    ERFINV_NEAR,
)
from tenonnx_tensorflow.attributes import dtype_of, is_complex
from tenonnx_tensorflow.held import Complex, as_dtype, by_wider, number, where
from tenonnx_tensorflow.rules import rule

_UNARY: dict[str, Any] = {
    "Abs": ops.absolute, "Acos": ops.acos, "Acosh": ops.acosh, "Asin": ops.asin, "Asinh": ops.asinh, "Atan": ops.atan,
    "Atanh": ops.atanh, "Ceil": ops.ceil, "Cos": ops.cos, "Cosh": ops.cosh, "Erf": ops.erf, "Exp": ops.exp,
    "Floor": ops.floor, "Inv": ops.reciprocal, "IsNan": ops.isnan, "IsInf": ops.isinf, "Log": ops.log,
    "LogicalNot": ops.not_, "Neg": ops.neg, "Reciprocal": ops.reciprocal, "Relu": ops.relu, "Rint": ops.round_,
    "Sigmoid": ops.sigmoid, "Sin": ops.sin, "Sinh": ops.sinh, "Softplus": ops.softplus, "Softsign": ops.softsign,
    "Sqrt": ops.sqrt, "Tan": ops.tan, "Tanh": ops.tanh, "Invert": ops.bitwise_not,
}  # fmt: skip

_BINARY: dict[str, Any] = {
    "Add": ops.add, "AddV2": ops.add, "Div": ops.div, "Greater": ops.greater,
    "GreaterEqual": ops.greater_or_equal, "Less": ops.less, "LessEqual": ops.less_or_equal, "LogicalAnd": ops.and_,
    "LogicalOr": ops.or_, "Mul": ops.mul, "RealDiv": ops.div,
    "Sub": ops.sub, "TruncateDiv": ops.div, "BitwiseAnd": ops.bitwise_and, "BitwiseOr": ops.bitwise_or,
    "BitwiseXor": ops.bitwise_xor,
}  # fmt: skip


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


@rule("Identity", "StopGradient", "PreventGradient", "CheckNumerics", "Snapshot", "EnsureShape", "DisableCopyOnRead",
      "PlaceholderWithDefault", "Print", "DebugIdentity", "DebugIdentityV2", "DebugIdentityV3", "OptionalGetValue")  # fmt: skip
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
    found = ops.equal(x, y)
    return found if node.op == "Equal" else ops.not_(found)


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
    """Floats that become integers lose their fraction, and more than zero is true."""
    target = dtype_of(node["DstT"])
    if is_complex(node["DstT"]):
        real = as_dtype(x, target)
        return Complex(real, ops.zeros_like(real))
    if x.dtype is DType.string or target is DType.string:
        raise NotRepresentable("a cast must be between numbers", given=f"{x.dtype.name} to {target.name}")
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
    """log(u) x / (u - 1) with u = 1 + x as rounded, which keeps the digits of a small x (W. Kahan, HP-15C handbook)."""
    one = number(1, x)
    total = ops.add(x, one)
    lost = ops.sub(total, one)
    none = ops.equal(lost, number(0, x))
    safe = ops.where(none, one, lost)
    finite = ops.less(total, number(np.inf, x))
    ratio = ops.where(finite, ops.div(x, safe), one)
    return ops.where(none, x, ops.mul(ops.log(total), ratio))


@rule("Expm1")
def expm1(node: Any, x: Value) -> Value:
    """2 sinh(x / 2) exp(x / 2) near zero, where exp(x) - 1 loses digits."""
    half = ops.mul(x, number(0.5, x))
    near = ops.mul(ops.mul(ops.sinh(half), ops.exp(half)), number(2, x))
    return ops.where(ops.less(ops.absolute(x), number(1, x)), near, ops.sub(ops.exp(x), number(1, x)))


@rule("FloorDiv")
def floor_div(node: Any, x: Value, y: Value) -> Value:
    kind = x.dtype.numpy.kind
    if kind == "u":
        return ops.div(x, y)
    if kind != "i":
        return ops.floor(ops.div(x, y))
    # Truncation is one too many where a rest is left and the signs differ.
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
    """Zero where ``x`` is, whatever ``result`` is there."""
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
    """The angle of a point: of the nearer axis first, then the quadrant, with the sign of ``y`` also where it is zero."""
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
    """1 - erf(x), and where that would lose digits a rational fit of exp(x²) erfc(x) (W. J. Cody, 1969)."""
    wide = x if x.dtype is not DType.float16 else ops.cast(x, to=DType.float32)
    size, one = ops.absolute(wide), number(1, wide)
    near = ops.less(size, number(0.5, wide))
    far = ops.less(size, number(4, wide))
    middle = _ratio(size, ERFC_ABOVE, ERFC_BELOW)
    inverse = ops.reciprocal(ops.where(near, one, ops.mul(size, size)))
    outer = ops.div(
        ops.sub(
            number(1 / math.sqrt(math.pi), wide), ops.mul(inverse, _ratio(inverse, ERFC_FAR_ABOVE, ERFC_FAR_BELOW))
        ),
        ops.maximum(size, number(0.5, wide)),
    )
    tail = ops.mul(ops.exp(ops.neg(ops.mul(wide, wide))), ops.where(far, middle, outer))
    tail = ops.where(ops.isinf(size), number(0, wide), tail)
    signed = ops.where(ops.less(wide, number(0, wide)), ops.sub(number(2, wide), tail), tail)
    return as_dtype(ops.where(near, ops.sub(one, ops.erf(wide)), signed), x.dtype)


def _polynomial(coefficients: list[float], x: Value) -> Value:
    """By Horner's rule, the highest power first."""
    total = number(coefficients[0], x)
    for each in coefficients[1:]:
        total = ops.add(ops.mul(total, x), number(each, x))
    return total


def _ratio(x: Value, above: list[float], below: list[float]) -> Value:
    return ops.div(_polynomial(above, x), _polynomial(below, x))


@rule("Erfinv")
def erfinv(node: Any, x: Value) -> Value:
    """Two fits in log(1 - x²) (M. Giles, 2012); in double precision set right by steps of Newton."""
    short = ops.cast(x, to=DType.float32) if x.dtype is not DType.float32 else x
    w = ops.neg(log1p(node, ops.neg(ops.mul(short, short))))
    near = _polynomial(ERFINV_NEAR, ops.sub(w, number(2.5, w)))
    far = _polynomial(ERFINV_FAR, ops.sub(ops.sqrt(ops.maximum(w, number(5, w))), number(3, w)))
    found = ops.mul(ops.where(ops.less(w, number(5, w)), near, far), short)
    if x.dtype is DType.float64:
        found = ops.cast(found, to=x.dtype)
        for _ in range(3):
            slope = ops.mul(number(2 / math.sqrt(math.pi), x), ops.exp(ops.neg(ops.mul(found, found))))
            size, sign = ops.absolute(x), ops.sign(x)
            tail = ops.mul(sign, ops.sub(ops.sub(number(1, x), size), erfc(node, ops.absolute(found))))
            wrong = ops.where(ops.less(size, number(0.5, x)), ops.sub(ops.erf(found), x), tail)
            found = ops.sub(found, ops.div(wrong, slope))
    one = number(1, x)
    found = as_dtype(found, x.dtype)
    edge = ops.where(ops.equal(ops.absolute(x), one), ops.mul(x, number(np.inf, x)), found)
    return ops.where(ops.greater(ops.absolute(x), one), number(np.nan, x), edge)


@rule("Ndtri")
def ndtri(node: Any, x: Value) -> Value:
    """The quantile of the normal distribution."""
    twice = ops.sub(ops.mul(x, number(2, x)), number(1, x))
    return ops.mul(erfinv(node, twice), number(math.sqrt(2), x))


@rule("LeftShift", "RightShift")
def shift(node: Any, x: Value, y: Value) -> Value:
    """By no less than nothing and no more than all places but one; the sign of a negative number comes along."""
    kind, last = x.dtype.numpy, 8 * x.dtype.numpy.itemsize - 1
    y = by_wider(ops.clip, y, number(0, y), number(last, y))
    if kind.kind == "u":
        direction = "LEFT" if node.op == "LeftShift" else "RIGHT"
        return by_wider(lambda x, y: ops.bitshift(x, y, direction=direction), x, y)
    if node.op == "LeftShift":
        return by_wider(lambda x, y: ops.mul(x, ops.pow_(number(2, y), y)), x, y)
    held, places = as_dtype(x, DType.int64), as_dtype(y, DType.int64)
    found = floor_div(node, held, ops.pow_(constant(np.asarray(2)), ops.minimum(places, constant(np.asarray(62)))))
    if last == 63:  # 2 ** 63 is no number of this type
        sign = ops.neg(ops.cast(ops.less(held, constant(np.asarray(0))), to=DType.int64))
        found = ops.where(ops.greater(places, constant(np.asarray(62))), sign, found)
    return as_dtype(found, x.dtype)


@rule("Bitcast")
def bitcast(node: Any, x: Value) -> Value:
    target = dtype_of(node["type"])
    if target.numpy.itemsize != x.dtype.numpy.itemsize:
        raise NotRepresentable("a bitcast must be between types of one width", given=f"{x.dtype.name} to {target.name}")
    return ops.bitcast(x, to=target)


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
    return ops.selu(x)


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
    raise NotRepresentable("a graph must be as it was before TensorFlow's optimizer", given=node.title)


@rule("Select", "SelectV2")
def select(node: Any, condition: Value, x: Value, y: Value) -> Value:
    """The first version takes a vector for the rows of what it chooses from."""
    if node.op == "Select" and condition.rank == 1 and (x.rank or 0) > 1:
        condition = ops.unsqueeze(condition, list(range(1, x.ndim)))
    return where(condition, x, y)


# ----- special functions ----------------------------------------------------------------------------------------------

_LANCZOS = [0.99999999999980993227684700473478, 676.520368121885098567009190444019, -1259.13921672240287047156078755283,
            771.3234287776530788486528258894, -176.61502916214059906584551354, 12.507343278686904814458936853,
            -0.13857109526572011689554707, 9.984369578019570859563e-6, 1.50563273514931155834e-7]  # fmt: skip


@rule("Lgamma")
def lgamma(node: Any, x: Value) -> Value:
    """By Lanczos's series (1964), and below one half by reflection."""
    one, half, pi = number(1, x), number(0.5, x), number(math.pi, x)
    reflected = ops.less(x, half)
    z = ops.where(reflected, ops.neg(x), ops.sub(x, one))
    total = number(_LANCZOS[0], x)
    for k, each in enumerate(_LANCZOS[1:], 1):
        total = ops.add(total, ops.div(number(each, x), ops.add(z, number(k, x))))
    t = ops.add(z, number(7.5, x))
    logged = ops.add(number(math.log(7.5), x), log1p(node, ops.div(z, number(7.5, x))))
    body = ops.sub(ops.mul(ops.add(z, half), logged), t)
    found = ops.add(ops.add(body, number(math.log(2 * math.pi) / 2, x)), ops.log(total))
    size = ops.absolute(x)
    part = ops.sub(size, ops.floor(size))
    part = ops.where(ops.greater(part, half), ops.sub(one, part), part)
    turned = ops.log(ops.sin(ops.mul(pi, part)))
    mirrored = ops.sub(ops.sub(number(math.log(math.pi), x), turned), found)
    result = ops.where(reflected, ops.where(ops.isinf(turned), ops.neg(turned), mirrored), found)
    return ops.where(ops.isinf(x), number(np.inf, x), result)


@rule("Digamma")
def digamma(node: Any, x: Value) -> Value:
    """By recurrence to where the asymptotic series holds, and below zero by reflection."""
    one, half, pi = number(1, x), number(0.5, x), number(math.pi, x)
    reflected = ops.less(x, half)
    z = ops.where(reflected, ops.sub(one, x), x)
    total = ops.zeros_like(z)
    for _ in range(10):
        small = ops.less(z, number(10, x))
        total = ops.where(small, ops.sub(total, ops.reciprocal(z)), total)
        z = ops.where(small, ops.add(z, one), z)
    square = ops.reciprocal(ops.mul(z, z))
    series = _polynomial([-691 / 32760, 1 / 132, -1 / 240, 1 / 252, -1 / 120, 1 / 12, 0.0], square)
    found = ops.add(total, ops.sub(ops.sub(ops.log(z), ops.div(half, z)), series))
    is_pole = ops.and_(reflected, ops.equal(x, ops.floor(x)))
    fraction = ops.sub(x, ops.floor(x))
    mirrored = ops.sub(found, ops.div(pi, ops.tan(ops.mul(pi, fraction))))
    return ops.where(is_pole, number(np.nan, x), ops.where(reflected, mirrored, found))


@rule("BesselI0e", "BesselI0", "BesselI1e", "BesselI1")
def bessel(node: Any, x: Value) -> Value:
    """Modified Bessel functions by the fits of Abramowitz and Stegun, 9.8.1 to 9.8.4, in float32 precision."""
    order = 1 if "I1" in node.op else 0
    size = ops.absolute(x)
    t = ops.div(size, number(3.75, x))
    square = ops.mul(t, t)
    near = _polynomial(_BESSEL_NEAR[order], square)
    if order:
        near = ops.mul(near, size)
    inverse = ops.reciprocal(ops.maximum(t, number(1, x)))
    far = ops.div(_polynomial(_BESSEL_FAR[order], inverse), ops.sqrt(ops.maximum(size, number(1, x))))
    scaled = ops.where(ops.less(size, number(3.75, x)), ops.mul(near, ops.exp(ops.neg(size))), far)
    found = scaled if node.op.endswith("e") else ops.mul(scaled, ops.exp(size))
    return ops.mul(found, ops.sign(x)) if order else found


_BESSEL_NEAR = (
    [0.0045813, 0.0360768, 0.2659732, 1.2067492, 3.0899424, 3.5156229, 1.0],
    [0.00032411, 0.00301532, 0.02658733, 0.15084934, 0.51498869, 0.87890594, 0.5],
)
_BESSEL_FAR = (
    [0.00392377, -0.01647633, 0.02635537, -0.02057706, 0.00916281, -0.00157565, 0.00225319, 0.01328592, 0.39894228],
    [-0.00420059, 0.01787654, -0.02895312, 0.02282967, -0.01031555, 0.00163801, -0.00362018, -0.03988024, 0.39894228],
)
