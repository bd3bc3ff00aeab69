"""Cases of Constant, ConstantOfShape, Range, EyeLike and Trilu."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from tenonnx_standard.cases.shapes import integers
from tenonnx_standard.constants import constant, constant_of_shape, eye_like, range_, trilu
from tenonnx_testing import Gap, call, cases, shapes, tensors

DTYPES = ["float32", "float64", "float16", "bfloat16", "int32", "int64", "uint8", "bool"]

words = st.sampled_from(["", "a", "zwei"])
floats = st.floats(-4, 4, width=32)


@cases(constant)
def constant_cases(draw):
    return call(value=draw(tensors([*DTYPES, "string", "complex64", "int4", "float8e5m2"])))


@cases(constant)
def constant_cases_2(draw):
    kind = draw(st.sampled_from([("float", floats), ("int", st.integers(-9, 9)), ("string", words)]))
    if draw(st.booleans()):
        return call(**{f"value_{kind[0]}": draw(kind[1])})
    return call(**{f"value_{kind[0]}s": draw(st.lists(kind[1], min_size=1))})


@cases(constant_of_shape)
def constant_of_shape_cases(draw):
    sides = integers(*draw(shapes(min_side=0)))
    return call(sides, value=draw(st.one_of(st.none(), tensors(DTYPES, shape=(1,)))))


SIGN_OF_ZERO = Gap(
    "special values",
    "its body adds the start to a product, and the rule counts, so that one gives 0 and one -0",
    when=lambda call: any(v == 0 for v in call.inputs),
)


@cases(range_, gaps=[SIGN_OF_ZERO])
def range_cases(draw):
    dtype = draw(st.sampled_from(["float32", "float64", "int16", "int32", "int64"]))
    step = draw(st.sampled_from([-3, -1, 1, 2] if "int" in dtype else [-1.5, -1, 0.375, 2]))
    start, count = draw(st.integers(-4, 4)), draw(st.integers(0, 6))
    limit = start + count * step - (step / 4 if "float" in dtype and count else 0)
    return call(*(np.asarray(v, dtype) for v in (start, limit, step)))


@cases(range_, gaps=[SIGN_OF_ZERO])
def range_cases_2(draw):
    step, start = draw(st.sampled_from([-1.5, 0.375, 2])), draw(st.integers(-4, 4))
    dtype = draw(tensors(["float16", "bfloat16"], shape=())).dtype
    limit = start + draw(st.integers(1, 6)) * step - step / 4
    return call(*(np.asarray(v, dtype) for v in (start, limit, step)), stash_type=1)


@cases(eye_like)
def eye_like_cases(draw):
    x = draw(tensors(["float32", "float64", "int32", "int64", "bool"], min_rank=2, max_rank=2))
    return call(x, dtype=draw(st.sampled_from([None, 1, 7, 11])), k=draw(st.integers(-4, 4)))


@cases(trilu)
def trilu_cases(draw):
    x = draw(tensors(DTYPES, min_rank=2))
    k = draw(st.one_of(st.none(), st.integers(-5, 5).map(lambda k: np.asarray(k, np.int64))))
    return call(x, k, upper=draw(st.integers(0, 1)))
