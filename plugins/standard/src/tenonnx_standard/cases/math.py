"""Cases of arithmetic, powers and rounding."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from tenonnx_standard import math as ops
from tenonnx_testing import Gap, broadcastable, call, cases, shapes, tensors

FLOATS = ["float32", "float64", "float16", "bfloat16"]
SIGNED = ["int8", "int16", "int32", "int64"]
UNSIGNED = ["uint8", "uint16", "uint32", "uint64"]
NUMBERS = [*FLOATS, *SIGNED, *UNSIGNED]


def unary(op, dtypes=FLOATS, *, gaps=(), gradient=True, **range_of_values):
    """One input, of values in a range."""

    @cases(op, gaps=gaps, gradient=gradient)
    def op_cases(draw):
        return call(draw(tensors(dtypes, **range_of_values)))


def binary(op, dtypes=NUMBERS, *, gaps=(), gradient=True, **range_of_values):
    """Two inputs that broadcast together."""

    @cases(op, gaps=gaps, gradient=gradient)
    def op_cases_2(draw):
        return call(*draw(broadcastable(2, dtypes, **range_of_values)))


NO_AXIS = Gap(
    "reference",
    "onnx.reference ignores axis, which aligned the axes of B with those of A before opset 7",
    when=lambda call: call.attributes.get("axis") is not None and np.ndim(call.inputs[1]) > 0,
)


def one_way(op, dtypes=("float32", "float64"), *, gaps=(NO_AXIS,), gradient=True, **range_of_values):
    """Two inputs; the second has the axes of the first from ``axis`` on, or one element."""

    @cases(op, gaps=gaps, gradient=gradient)
    def op_cases_3(draw):
        kind = draw(st.sampled_from(["same", "last", "axis", "one"]))
        # Axes of equal length, so that the axes of B could match any of A's.
        whole = (draw(st.integers(2, 3)),) * draw(st.integers(2, 3)) if kind == "axis" else draw(shapes())
        a = draw(tensors(dtypes, shape=whole, **range_of_values))
        axis = draw(st.integers(0, a.ndim))
        sides = {"same": whole, "last": whole[axis:], "axis": whole[axis : a.ndim - 1], "one": (1,) * min(a.ndim, 1)}
        b = draw(tensors(a.dtype.name, shape=sides[kind], **range_of_values))
        if kind == "same":
            return call(a, b)
        return call(a, b, broadcast=1, **({"axis": axis} if kind == "axis" else {}))


def variadic(op, dtypes=NUMBERS, *, gaps=(), gradient=True, **range_of_values):
    """One to four inputs that broadcast together."""

    @cases(op, gaps=gaps, gradient=gradient)
    def op_cases_4(draw):
        return call(*draw(broadcastable(draw(st.integers(1, 4)), dtypes, **range_of_values)))


def of_one_shape(op, *, distinct=False):
    """One to four inputs of the same shape."""

    @cases(op)
    def op_cases_5(draw):
        stack = draw(tensors(["float32", "float64"], min_rank=1, distinct=distinct))
        return call(*stack)


# ----- arithmetic -----------------------------------------------------------------------------------------------------

#: Reason given for ops without a gradient to compare.
STEPS = "it is constant but for jumps"

binary(ops.add)
binary(ops.sub)
binary(ops.mul)
binary(ops.div, exclude_near=(0,))
one_way(ops.add_one_way)
one_way(ops.sub_one_way)
one_way(ops.mul_one_way)
one_way(ops.div_one_way, exclude_near=(0,))
one_way(ops.pow_one_way, min_value=0.5, max_value=3)

unary(ops.neg, [*FLOATS, *SIGNED])
unary(ops.absolute, NUMBERS, exclude_near=(0,))
unary(
    ops.sign,
    NUMBERS,
    gradient=STEPS,
    gaps=[Gap("special values", "the sign of NaN is undefined, and the body returns 0")],
)
unary(ops.reciprocal, exclude_near=(0,))

# ----- rounding -------------------------------------------------------------------------------------------------------

unary(ops.ceil, gradient=STEPS)
unary(ops.floor, gradient=STEPS)
SIGN_OF_ZERO = Gap(
    "special values",
    "its body adds 0, and -0 + 0 is 0",
    when=lambda call: bool((np.abs(call.inputs[0].astype(np.float64)) <= 0.5).any()),
)
unary(ops.round_, gradient=STEPS, gaps=[SIGN_OF_ZERO])


@cases(ops.round_, gradient=STEPS, gaps=[SIGN_OF_ZERO])
def round_cases(draw):
    """Halves, which round to even."""
    return call(draw(tensors(FLOATS, min_value=-8, max_value=8)).round() / 2)


# ----- powers ---------------------------------------------------------------------------------------------------------

unary(ops.sqrt, min_value=0.1)
unary(ops.exp)
unary(ops.log, min_value=0.1)


@cases(ops.pow_)
def pow_cases(draw):
    x, y = draw(broadcastable(2, min_value=0.5, max_value=3))
    wanted = draw(st.sampled_from(FLOATS))
    return call(x.astype(_numpy(wanted)), y.astype(_numpy(draw(st.sampled_from([wanted, "float32", "float64"])))))


@cases(ops.pow_)
def pow_cases_2(draw):
    """Integer exponents, including common ones."""
    x, y = draw(broadcastable(2, min_value=0.5, max_value=3))
    x = x.astype(_numpy(draw(st.sampled_from(["float32", "float64", "float16"]))))
    number = draw(st.sampled_from([None, 0, 1, 2, 3, -1]))
    y = y.round() if number is None else np.full(draw(st.sampled_from([(), (1,)])), number)
    return call(x, y.astype(draw(st.sampled_from(["int32", "int64", "float32"]))))


@cases(ops.pow_)
def pow_cases_3(draw):
    """Integers to the power of integers."""
    x, y = draw(broadcastable(2, ["int32", "int64"], min_value=-3, max_value=3))
    return call(x, np.abs(y))


@cases(ops.mod)
def mod_cases(draw):
    integers = draw(st.booleans())
    a, b = draw(broadcastable(2, [*SIGNED, *UNSIGNED] if integers else FLOATS, min_value=-7, max_value=7))
    b = np.where(b == 0, b.dtype.type(3), b) if integers else _divisors_apart(a, b)
    return call(a, b, fmod=draw(st.integers(0, 1)))


@cases(ops.mod_of_integers)
def mod_of_integers_cases(draw):
    integers = draw(st.booleans())
    a, b = draw(broadcastable(2, [*SIGNED, *UNSIGNED] if integers else FLOATS, min_value=-7, max_value=7))
    b = np.where(b == 0, b.dtype.type(3), b) if integers else _divisors_apart(a, b)
    return call(a, b, fmod=draw(st.integers(0, 1)) if integers else 1)


def _divisors_apart(a, b):
    """Divisors of one sign each, with no quotient near an integer: halves of odd numbers by integers."""
    b = np.where(b < 0, -2, 2).astype(b.dtype)
    a[...] = np.round(a.astype(np.float64)) + 0.5
    return b


def _numpy(name):
    from tenonnx.extend import DType

    return DType[name].numpy


# ----- several inputs -------------------------------------------------------------------------------------------------


def extremes(op):
    @cases(op)
    def op_cases_6(draw):
        arrays = draw(broadcastable(draw(st.integers(1, 4)), NUMBERS, max_rank=3, max_side=3))
        if arrays[0].dtype.kind in "iu":
            return call(*arrays)
        count = len(arrays)
        return call(*(((np.round(a.astype(float) * 2) * count + k) / 4).astype(a.dtype) for k, a in enumerate(arrays)))


extremes(ops.maximum)
extremes(ops.minimum)
variadic(ops.sum_, FLOATS)
variadic(ops.mean, FLOATS)
of_one_shape(ops.maximum_of_one_shape, distinct=True)
of_one_shape(ops.minimum_of_one_shape, distinct=True)
of_one_shape(ops.sum_of_one_shape)
of_one_shape(ops.mean_of_one_shape)


@cases(ops.clip)
def clip_cases(draw):
    low, high = draw(st.sampled_from([(None, None), (-1, None), (None, 1), (-1, 2), (1, -1)]))
    x = draw(tensors(NUMBERS, exclude_near=() if low is None and high is None else (-1, 1, 2)))
    unsigned = x.dtype.kind == "u"
    return call(x, *(None if v is None else np.asarray(abs(v) if unsigned else v).astype(x.dtype) for v in (low, high)))


# ----- functions ------------------------------------------------------------------------------------------------------

unary(
    ops.erf,
    gaps=[
        Gap(
            "reference",
            "onnx.reference computes the error function in float32",
            when=lambda call: call.inputs[0].dtype == np.float64,
        )
    ],
)
