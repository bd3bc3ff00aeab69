"""Cases of conversion between element types."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from tenonnx.extend import DType
from tenonnx_standard.cases.math import FLOATS, NUMBERS
from tenonnx_standard.casting import (
    bitcast,
    cast,
    cast_by_name,
    cast_infinity_to_nan,
    cast_like,
    cast_like_infinity_to_nan,
)
from tenonnx_testing import Gap, call, cases, tensors

FLOAT8 = ["float8e4m3fn", "float8e4m3fnuz", "float8e5m2", "float8e5m2fnuz"]
SHORT = ["int4", "uint4", "int2", "uint2", "float4e2m1"]


def number(draw, dtypes, targets):
    """Numbers that every target type represents, where ``x`` or the target is an integer type."""
    to = DType[draw(st.sampled_from(targets))]
    low = 0 if (to.is_integer and not to.is_signed) or to is DType.float8e8m0 else -2
    x = draw(tensors(dtypes, min_value=low, max_value=1 if to.bits == 2 else 6))
    return x, to


def extremes(draw):
    """Numbers around and beyond the largest finite ones of float8 types."""
    numbers = [0.0, -0.0, 240, 241, 248, 256, 448, 464, 465, 480, 57344, 61440, 61441, 1e6, np.inf, np.nan]
    chosen = draw(st.lists(st.sampled_from(numbers), max_size=6))
    x = np.asarray(chosen, np.float32) * draw(st.sampled_from([1, -1]))
    return x.astype(draw(st.sampled_from(["float32", "float64"])))


@cases(cast)
def cast_cases(draw):
    x, to = number(draw, [*NUMBERS, "bool"], [*NUMBERS, "bool"])
    return call(x, to=to)


ROUNDS = [
    Gap(
        check,
        "onnxruntime rounds floats to integers of at most 4 bits, and truncates to all others",
        when=lambda c: _is_cut(c),
    )
    for check in ("onnxruntime", "export")
]


def _is_cut(drawn):
    x, to = drawn.inputs[0], DType(drawn.attributes["to"])
    return to.bits <= 4 and to.is_integer and bool((x.astype(np.float64) % 1 != 0).any())


@cases(cast, gaps=ROUNDS)
def cast_cases_2(draw):
    """To and from types of few bits."""
    x, to = number(draw, [*FLOATS, "int32", "uint8", *FLOAT8, *SHORT], [*FLOATS, "int8", *FLOAT8, *SHORT])
    return call(x, to=to)


def _is_beyond(drawn):
    """Whether 480 overflows float8e4m3fn, or a number overflows float8e5m2, without saturation."""
    x, to = np.abs(drawn.inputs[0]), drawn.attributes["to"]
    too_large = (x >= 61440) & np.isfinite(x) if to == DType.float8e5m2 else (x == 480) & (to == DType.float8e4m3fn)
    return not drawn.attributes["saturate"] and bool(too_large.any())


SATURATES = [
    Gap(
        check,
        "onnxruntime casts 480 to float8e4m3fn 448, not NaN, and overflow of float8e5m2 to NaN, not infinity",
        when=_is_beyond,
    )
    for check in ("onnxruntime", "export")
]


@cases(cast, gaps=SATURATES, gradient=False)
def cast_cases_3(draw):
    to = DType[draw(st.sampled_from(FLOAT8))]
    return call(extremes(draw), to=to, saturate=draw(st.integers(0, 1)))


@cases(cast, gradient=False)
def cast_cases_4(draw):
    """To float8e8m0, which has only powers of two."""
    x = draw(tensors(["float32", "float16", "bfloat16"], min_value=0.01, max_value=100))
    mode = draw(st.sampled_from(["up", "down", "nearest"]))
    return call(x, to=DType.float8e8m0, saturate=draw(st.integers(0, 1)), round_mode=mode)


TEXT = Gap(
    "reference",
    "onnx.reference formats bools and floats as Python does, onnxruntime as C does",
    when=lambda drawn: drawn.inputs[0].dtype.kind not in "iu",
)


@cases(cast, gaps=[TEXT], gradient=False)
def cast_cases_5(draw):
    """Numbers to text."""
    return call(draw(tensors(["int8", "int64", "uint16", "bool", "float32", "float64"])), to=DType.string)


@cases(cast, gradient=False)
def cast_cases_6(draw):
    """Text to numbers."""
    whole = draw(st.booleans())
    words = ["0", "1", "-2", "17"] if whole else ["0.5", "-2.25", "1e-3", "1E4", "INF", "-inf", "NaN", "+INF"]
    chosen = draw(st.lists(st.sampled_from(words), min_size=1, max_size=5))
    to = draw(st.sampled_from(["int8", "int32", "int64", "float32"] if whole else ["float32", "float64", "float16"]))
    return call(np.asarray(chosen, dtype=object), to=DType[to])


@cases(cast_infinity_to_nan)
def cast_infinity_to_nan_cases(draw):
    x, to = number(draw, [*NUMBERS, "bool", *FLOAT8], [*NUMBERS, "bool", *FLOAT8])
    return call(x, to=to)


INFINITE = Gap(
    "reference",
    "onnx.reference saturates infinities before opset 24, too, in the float8 types without infinity",
    when=lambda drawn: bool(drawn.attributes["saturate"] and np.isinf(drawn.inputs[0]).any()),
)


UNSIGNED_ZERO = [
    Gap(
        check,
        "onnxruntime casts infinities to the largest number of the float8 types without a negative zero",
        when=lambda drawn: _is_infinity_without_form(drawn),
    )
    for check in ("onnxruntime", "export")
]


def _is_infinity_without_form(drawn):
    without = drawn.attributes["to"] in (DType.float8e4m3fnuz, DType.float8e5m2fnuz)
    earlier = drawn.version is None or drawn.version < 24
    return bool(without and earlier and drawn.attributes["saturate"] and np.isinf(drawn.inputs[0]).any())


@cases(cast_infinity_to_nan, gaps=[*SATURATES, *UNSIGNED_ZERO, INFINITE], gradient=False)
def cast_infinity_to_nan_cases_2(draw):
    to = DType[draw(st.sampled_from(FLOAT8))]
    return call(extremes(draw), to=to, saturate=draw(st.integers(0, 1)))


@cases(cast_by_name)
def cast_by_name_cases(draw):
    names = {"FLOAT": "float32", "DOUBLE": "float64", "FLOAT16": "float16", "INT32": "int32", "BOOL": "bool"}
    name = draw(st.sampled_from(list(names)))
    return call(draw(tensors(["float32", "float64", "int32", "uint8", "bool"], min_value=0)), to=name)


@cases(cast_like)
def cast_like_cases(draw):
    x, to = number(draw, [*NUMBERS, "bool"], [*NUMBERS, "bool", *FLOAT8])
    return call(x, np.zeros(draw(st.sampled_from([(), (2,)])), to.numpy))


@cases(cast_like_infinity_to_nan)
def cast_like_infinity_to_nan_cases(draw):
    x, to = number(draw, [*NUMBERS, "bool"], [*NUMBERS, "bool", *FLOAT8])
    return call(x, np.zeros(draw(st.sampled_from([(), (2,)])), to.numpy))


@cases(bitcast, gradient="bits of another type have no derivative")
def bitcast_cases(draw):
    x = draw(tensors([*NUMBERS, *FLOAT8]))
    bits = DType.of(x.dtype).bits
    same = [d for d in DType if d.bits == bits and d is not DType.bool]
    return call(x, to=draw(st.sampled_from(same)))
