"""Elementwise primitives."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import ml_dtypes
import numpy as np

import tenonnx_standard as ops
from tenonnx.extend import DType, NotRepresentable, Value, static
from tenonnx_frontends import numerics
from tenonnx_jax.integer_division import guarded, quotient
from tenonnx_jax.promotion import SIXTEEN_BITS, scalar, where, widened
from tenonnx_jax.rules import Rule, rule


def _plain(op: Any) -> Rule:
    return lambda equation, *values, **_: op(*values)


for _name, _op in {
    "add": ops.add,
    "sub": ops.sub,
    "exp": ops.exp,
    "log": ops.log,
    "sqrt": ops.sqrt,
    "sin": ops.sin,
    "cos": ops.cos,
    "tan": ops.tan,
    "asin": ops.asin,
    "acos": ops.acos,
    "atan": ops.atan,
    "sinh": ops.sinh,
    "cosh": ops.cosh,
    "tanh": ops.tanh,
    "asinh": ops.asinh,
    "acosh": ops.acosh,
    "atanh": ops.atanh,
    "ceil": ops.ceil,
    "floor": ops.floor,
    "erf": ops.erf,
    "logistic": ops.sigmoid,
}.items():
    rule(_name)(_plain(_op))


def _comparison(op: Any) -> Rule:
    def compared(equation: Any, x: Value, y: Value, **_: Any) -> Value:
        if x.dtype is DType.bfloat16:
            x, y = ops.cast(x, to=DType.float32), ops.cast(y, to=DType.float32)
        return op(x, y)

    return compared


for _name, _op in {
    "eq": ops.equal,
    "ne": lambda x, y: ops.not_(ops.equal(x, y)),
    "lt": ops.less,
    "gt": ops.greater,
    "le": ops.less_or_equal,
    "ge": ops.greater_or_equal,
}.items():
    rule(_name)(_comparison(_op))


@rule("neg")
def neg_rule(equation: Any, x: Value, **_: Any) -> Value:
    return ops.neg(x) if x.dtype.is_signed else ops.sub(scalar(0, x), x)


#: ``add_any`` sums cotangents; ``stop_gradient`` and similar ones only matter to JAX's transformations.
rule("add_any")(_plain(ops.add))


@rule(
    "copy",
    "copy_p",
    "stop_gradient",
    "optimization_barrier",
    "sharding_constraint",
    moves=True,
)
def copy_rule(equation: Any, *values: Value, **_: Any) -> Any:
    return values[0] if len(values) == 1 else list(values)


rule("name", "pvary", "pbroadcast", "mesh_cast", "reshard", "layout_constraint", moves=True)(lambda equation, x, **_: x)


@rule("mul")
def mul_rule(equation: Any, x: Value, y: Value, **_: Any) -> Value:
    return ops.mul(x, y) if (of := _argument_of_gelu(equation, x)) is None else ops.gelu(of)


def _argument_of_gelu(equation: Any, half: Value) -> Value | None:
    """The argument of a product that ``jax.nn.gelu(approximate=False)`` made: x / 2 erfc(-x / sqrt(2)); else None."""
    halved, tail = map(equation.origin, equation.invars)
    if halved is None or tail is None or (halved.primitive.name, tail.primitive.name) != ("mul", "erfc"):
        return None
    scaled = equation.origin(tail.invars[0])
    turned = None if scaled is None or scaled.primitive.name != "mul" else equation.origin(scaled.invars[0])
    if turned is None or turned.primitive.name != "neg" or turned.invars[0] is not halved.invars[1]:
        return None
    numbers = [getattr(var, "val", 0) for var in (halved.invars[0], scaled.invars[1])]
    if not np.allclose(
        np.asarray(numbers, np.float64), [0.5, math.sqrt(0.5)], rtol=2.0 ** -(7 if half.dtype.bits < 32 else 20)
    ):
        return None
    return half.producer.inputs[1] if half.producer is not None and half.producer.op_type == "Mul" else None


@rule("lt_to", "le_to")
def lt_to_rule(equation: Any, x: Value, y: Value, **_: Any) -> Value:
    """The total order of floats: -0 before 0, and NaN last."""
    result = ops.less(x, y)
    same = ops.equal(x, y)
    if x.dtype.is_float:
        x_missing, y_missing = ops.isnan(x), ops.isnan(y)
        result = ops.or_(result, ops.and_(ops.not_(x_missing), y_missing))
        ordered = ops.and_(same, ops.and_(_is_negative(x), ops.not_(_is_negative(y))))
        turned = ops.and_(same, ops.and_(_is_negative(y), ops.not_(_is_negative(x))))
        zero = ops.equal(x, scalar(0, x))
        result = ops.or_(result, ops.and_(zero, ordered))
        same = ops.or_(ops.and_(same, ops.not_(ops.and_(zero, turned))), ops.and_(x_missing, y_missing))
    return result if equation.name == "lt_to" else ops.or_(result, same)


@rule("abs")
def abs_rule(equation: Any, x: Value, **_: Any) -> Value:
    return x if not x.dtype.is_signed else ops.absolute(x)


@rule("sign")
def sign_rule(equation: Any, x: Value, **_: Any) -> Value:
    result = ops.sign(x)
    return ops.where(ops.isnan(x), x, result) if x.dtype.is_float else result


@rule("max")
def max_rule(equation: Any, x: Value, y: Value, **_: Any) -> Value:
    if x.dtype is DType.bool:
        return ops.or_(x, y)
    result = _variance(y, x) if static(y) is None else _variance(x, y)
    return _extreme(ops.maximum, x, y) if result is None else result


def _variance(x: Value, least: Value) -> Value | None:
    """Rewrite the variance of Flax, the mean of squares minus the squared mean, as the mean of squared differences.

    This does not cancel digits, is never negative, and is the pattern of normalization layers elsewhere.
    """
    contents = static(least)
    if contents is None or contents.size != 1 or contents.any():
        return None
    squares, square = _inputs(x, "Sub", 2)
    mean, again = _inputs(square, "Mul", 2)
    (product, axes), (source, others) = _inputs(squares, "ReduceMean", 2), _inputs(mean, "ReduceMean", 2)
    if source is None or axes is None or mean is not again or _inputs(product, "Mul", 2) != (source, source):
        return None
    if not _equal(axes, others) or squares.producer.attributes["keepdims"]:  # type: ignore[union-attr]
        return None
    difference = ops.sub(source, ops.unsqueeze(mean, axes))
    return ops.reduce_mean(ops.mul(difference, difference), axes, keepdims=0)


def _inputs(x: Value | None, op_type: str, count: int) -> tuple[Value | None, ...]:
    """The inputs of the node that produces ``x``, if it has this op type."""
    node = None if x is None else x.producer
    return tuple(node.inputs) if node is not None and node.op_type == op_type else (None,) * count


def _equal(x: Value | None, y: Value | None) -> bool:
    first, second = static(x), static(y)
    return x is y if first is None or second is None else np.array_equal(first, second)


@rule("min")
def min_rule(equation: Any, x: Value, y: Value, **_: Any) -> Value:
    return ops.and_(x, y) if x.dtype is DType.bool else _extreme(ops.minimum, x, y)


def _extreme(op: Any, x: Value, y: Value) -> Value:
    for one, other in ((x, y), (y, x)):
        contents = static(one)
        if contents is not None and contents.ndim == 0 and x.dtype.is_float:
            if contents == (-np.inf if op is ops.maximum else np.inf):
                return other
            if op is ops.maximum and contents == 0:
                return ops.relu(other)
    return widened(op, SIXTEEN_BITS, x, y)


@rule("clamp")
def clamp_rule(equation: Any, low: Value, x: Value, high: Value, **_: Any) -> Value:
    if x.dtype is DType.bool:
        return ops.and_(ops.or_(x, low), high)
    return widened(lambda x, low, high: ops.minimum(ops.maximum(x, low), high), SIXTEEN_BITS, x, low, high)


@rule("square")
def square_rule(equation: Any, x: Value, **_: Any) -> Value:
    return ops.mul(x, x)


@rule("rsqrt")
def rsqrt_rule(equation: Any, x: Value, **_: Any) -> Value:
    return ops.reciprocal(ops.sqrt(x))


@rule("cbrt")
def cbrt_rule(equation: Any, x: Value, **_: Any) -> Value:
    root = ops.mul(ops.sign(x), ops.pow_(ops.absolute(x), scalar(1 / 3, x)))
    small = ops.where(ops.equal(root, scalar(0, x)), scalar(1, x), root)
    better = ops.sub(root, ops.div(ops.sub(root, ops.div(ops.div(x, small), small)), scalar(3, x)))
    special = ops.or_(ops.equal(x, scalar(0, x)), ops.isinf(x))
    return ops.where(special, x, better)


@rule("exp2")
def exp2_rule(equation: Any, x: Value, **_: Any) -> Value:
    return ops.pow_(scalar(2, x), x)


@rule("log1p")
def log1p_rule(equation: Any, x: Value, **_: Any) -> Value:
    return numerics.log1p(x)


@rule("expm1")
def expm1_rule(equation: Any, x: Value, **_: Any) -> Value:
    return numerics.expm1(x)


@rule("erfc")
def erfc_rule(equation: Any, x: Value, **_: Any) -> Value:
    return numerics.erfc(x)


@rule("erf_inv")
def erf_inv_rule(equation: Any, x: Value, **_: Any) -> Value:
    return numerics.erfinv(x)


@rule("div")
def div_rule(equation: Any, x: Value, y: Value, **_: Any) -> Value:
    if x.dtype.is_float:
        result = _mean(equation, x, y)
        return ops.div(x, y) if result is None else result
    return quotient(x, y)


def _mean(equation: Any, total: Value, count: Value) -> Value | None:
    """Recognize a mean: a sum over axes or windows divided by the number of its terms."""
    number, before = static(count), equation.origin(equation.invars[0])
    if before is None or number is None or number.size != 1:
        return None
    if before.primitive.name == "reduce_window_sum":  # which is computed from a mean
        mean, factor = _inputs(total, "Mul", 2)
        return mean if _equal(factor, count) else None
    source, axes = _inputs(total, "ReduceSum", 2)
    if source is None or axes is None or before.primitive.name != "reduce_sum":
        return None
    shape = before.invars[0].aval.shape
    dims = [shape[axis] for axis in before.params["axes"]]
    if not all(isinstance(dim, int) for dim in dims) or np.prod(dims) != number:
        return None
    return ops.reduce_mean(source, axes, keepdims=0)


@rule("rem")
def rem_rule(equation: Any, x: Value, y: Value, **_: Any) -> Value:
    if x.dtype.is_float:
        return ops.mod(x, y, fmod=1)
    return guarded(lambda a, b: ops.mod(a, b, fmod=1), x, y, x)


@rule("pow")
def pow_rule(equation: Any, x: Value, y: Value, **_: Any) -> Value:
    return ops.pow_(x, ops.cast(y, to=x.dtype) if y.dtype is not x.dtype else y)


@rule("integer_pow")
def integer_pow_rule(equation: Any, x: Value, *, y: int, **_: Any) -> Value:
    if y < 0:
        return ops.reciprocal(_power(x, -y))
    return ops.add(ops.mul(x, scalar(0, x)), scalar(1, x)) if y == 0 else _power(x, y)


def _power(x: Value, exponent: int) -> Value:
    if x.dtype.is_float and exponent > 3:
        return ops.pow_(x, scalar(exponent, x))
    result, square = None, x
    while exponent:
        if exponent & 1:
            result = square if result is None else ops.mul(result, square)
        exponent >>= 1
        square = ops.mul(square, square) if exponent else square
    assert result is not None
    return result


@rule("atan2")
def atan2_rule(equation: Any, y: Value, x: Value, **_: Any) -> Value:
    """The angle of (x, y): atan of the quotient of the shorter by the longer, corrected by octant."""
    zero, pi = scalar(0, x), scalar(math.pi, x)
    longer, shorter = ops.maximum(ops.absolute(x), ops.absolute(y)), ops.minimum(ops.absolute(x), ops.absolute(y))
    both = ops.and_(ops.isinf(x), ops.isinf(y))
    still = ops.equal(longer, zero)
    share = ops.where(both, scalar(1, x), ops.div(shorter, ops.where(still, scalar(1, x), longer)))
    angle = ops.atan(share)
    angle = ops.where(ops.greater(ops.absolute(y), ops.absolute(x)), ops.sub(scalar(math.pi / 2, x), angle), angle)
    angle = ops.where(_is_negative(x), ops.sub(pi, angle), angle)
    angle = ops.where(_is_negative(y), ops.neg(angle), angle)
    return ops.where(ops.or_(ops.isnan(x), ops.isnan(y)), ops.add(x, y), angle)


def _is_negative(x: Value) -> Value:
    """Whether the sign bit is set, including that of -0."""
    one = scalar(1, x)
    zero = ops.equal(x, scalar(0, x))
    return ops.less(ops.where(zero, ops.reciprocal(x), x), ops.sub(one, one))


@rule("round")
def round_rule(equation: Any, x: Value, *, rounding_method: Any, **_: Any) -> Value:
    if int(rounding_method) == 1:
        return ops.round_(x)
    size = ops.absolute(x)
    down = ops.floor(size)
    away = ops.where(ops.greater_or_equal(ops.sub(size, down), scalar(0.5, x)), ops.add(down, scalar(1, x)), down)
    return ops.where(ops.isnan(x), x, ops.mul(ops.sign(x), away))


@rule("is_finite")
def is_finite_rule(equation: Any, x: Value, **_: Any) -> Value:
    return ops.not_(ops.or_(ops.isnan(x), ops.isinf(x)))


@rule("select_n", moves=True)
def select_n_rule(equation: Any, which: Value, *cases: Value, **_: Any) -> Value:
    if len(cases) == 1:
        return cases[0]
    return widened(lambda *cases: _selected(which, cases), SIXTEEN_BITS, *cases)


def _selected(which: Value, cases: Sequence[Value]) -> Value:
    if which.dtype is DType.bool:
        return ops.where(which, cases[1], cases[0])
    result = cases[0]
    for k, case in enumerate(cases[1:], 1):
        result = ops.where(ops.equal(which, scalar(k, which)), case, result)
    return result


@rule("convert_element_type")
def convert_element_type_rule(equation: Any, x: Value, *, new_dtype: Any, **_: Any) -> Value:
    return converted(x, equation.dtype)


def converted(x: Value, to: DType) -> Value:
    """Convert ``x`` to another element type as XLA: floats outside the integer range are clamped."""
    if x.dtype is to:
        return x
    if to is DType.bool:
        return ops.not_(ops.equal(x, scalar(0, x)))
    if not (x.dtype.is_float and to.is_integer):
        return ops.cast(x, to=to)
    limits = np.iinfo(to.numpy)
    wide = DType.float64 if x.dtype is DType.float64 or limits.bits >= 32 else DType.float32
    whole = ops.cast(x, to=wide)
    high = np.nextafter(np.asarray(float(limits.max) + 1, wide.numpy), 0) if limits.bits >= 53 else float(limits.max)
    low = scalar(float(limits.min), whole)
    inside = ops.minimum(ops.maximum(ops.where(ops.isnan(whole), scalar(0, whole), whole), low), scalar(high, whole))
    return ops.cast(inside, to=to)


# ----- bits -----------------------------------------------------------------------------------------------------------


@rule("and")
def and_rule(equation: Any, x: Value, y: Value, **_: Any) -> Value:
    return ops.and_(x, y) if x.dtype is DType.bool else ops.bitwise_and(x, y)


@rule("or")
def or_rule(equation: Any, x: Value, y: Value, **_: Any) -> Value:
    return ops.or_(x, y) if x.dtype is DType.bool else ops.bitwise_or(x, y)


@rule("xor")
def xor_rule(equation: Any, x: Value, y: Value, **_: Any) -> Value:
    return ops.xor(x, y) if x.dtype is DType.bool else ops.bitwise_xor(x, y)


@rule("not")
def not_rule(equation: Any, x: Value, **_: Any) -> Value:
    return ops.not_(x) if x.dtype is DType.bool else ops.bitwise_not(x)


def bits_of(dtype: DType) -> int:
    return int(np.dtype(dtype.numpy).itemsize * 8)


def _shifted(x: Value, by: Value, direction: str) -> Value:
    """A logical shift; shifting by the number of bits or more results in 0."""
    unsigned = DType.of(np.dtype(f"uint{bits_of(x.dtype)}"))
    contents = static(by)
    plain, count = ops.cast(x, to=unsigned), ops.cast(by, to=unsigned)
    if x.dtype is unsigned:
        plain, count = x, by
    result = ops.bitshift(plain, count, direction=direction)
    if contents is None or (contents.astype(np.uint64) >= bits_of(x.dtype)).any():
        inside = ops.less(count, scalar(bits_of(x.dtype), count))
        result = where(inside, result, scalar(0, plain))
    return result if x.dtype is unsigned else ops.cast(result, to=x.dtype)


@rule("shift_left")
def shift_left_rule(equation: Any, x: Value, by: Value, **_: Any) -> Value:
    return _shifted(x, by, "LEFT")


@rule("shift_right_logical")
def shift_right_logical_rule(equation: Any, x: Value, by: Value, **_: Any) -> Value:
    return _shifted(x, by, "RIGHT")


@rule("shift_right_arithmetic")
def shift_right_arithmetic_rule(equation: Any, x: Value, by: Value, **_: Any) -> Value:
    if not x.dtype.is_signed:
        return _shifted(x, by, "RIGHT")
    negative = ops.less(x, scalar(0, x))
    turned = where(negative, ops.bitwise_not(x), x)
    shifted = _shifted(turned, by, "RIGHT")
    return where(negative, ops.bitwise_not(shifted), shifted)


@rule("population_count")
def population_count_rule(equation: Any, x: Value, **_: Any) -> Value:
    return _count_bits(x, [(x, k) for k in range(bits_of(x.dtype))])


def _count_bits(x: Value, bits: Any) -> Value:
    result = None
    for value, k in bits:
        one = ops.bitwise_and(_shifted(value, scalar(k, value), "RIGHT"), scalar(1, value))
        result = one if result is None else ops.add(result, one)
    assert result is not None
    return result


@rule("clz")
def clz_rule(equation: Any, x: Value, **_: Any) -> Value:
    bits, widened = bits_of(x.dtype), x
    step = 1
    while step < bits:  # set all bits below the highest
        widened = ops.bitwise_or(widened, _shifted(widened, scalar(step, widened), "RIGHT"))
        step *= 2
    return ops.sub(scalar(bits, x), _count_bits(x, [(widened, k) for k in range(bits)]))


@rule("reduce_precision")
def reduce_precision_rule(equation: Any, x: Value, *, exponent_bits: int, mantissa_bits: int, **_: Any) -> Value:
    """Round to a format with these numbers of bits."""
    for kind in (DType.bfloat16, DType.float16, DType.float32, DType.float64):
        limits: Any = ml_dtypes.finfo(kind.numpy)  # type: ignore[no-untyped-call]
        if (limits.nexp, limits.nmant) == (exponent_bits, mantissa_bits):
            return x if kind is x.dtype else ops.cast(ops.cast(x, to=kind), to=x.dtype)
    raise NotRepresentable(
        "the precision is not that of float16, bfloat16, float32 or float64",
        given=f"{exponent_bits} bits of exponent, {mantissa_bits} of mantissa",
    )
