"""Cases of comparison, logic and bits."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from tenonnx_standard import logic as ops
from tenonnx_standard.cases.math import NUMBERS, SIGNED, UNSIGNED, binary, one_way, unary
from tenonnx_testing import broadcastable, call, cases, tensors

for _order in (ops.less, ops.greater, ops.less_or_equal, ops.greater_or_equal):
    binary(_order, gradient=False)
binary(ops.equal, [*NUMBERS, "bool", "string"], gradient=False)
one_way(ops.equal_one_way, ("bool", "int32", "int64"), gradient=False, min_value=0, max_value=1)
one_way(ops.less_one_way, gradient=False)
one_way(ops.greater_one_way, gradient=False)


@cases(ops.equal, gradient=False)
def equal_cases(draw):
    """Numbers, some of them equal, and NaN."""
    a, b = draw(broadcastable(2, ["float32", "float64", "float16"], min_value=-2, max_value=2))
    a, b = np.round(a), np.round(b)
    return call(np.where(a == 2, a.dtype.type(np.nan), a), np.where(b == 2, b.dtype.type(np.nan), b))


for _connective in (ops.and_, ops.or_, ops.xor):
    binary(_connective, ["bool"], gradient=False)
for _connective in (ops.and_one_way, ops.or_one_way, ops.xor_one_way):
    one_way(_connective, ["bool"], gradient=False)
unary(ops.not_, ["bool"], gradient=False)


@cases(ops.where)
def where_cases(draw):
    condition, x, y = draw(broadcastable(3, [*NUMBERS, "bool", "string"]))
    return call(draw(tensors("bool", shape=condition.shape)), x, y)


# ----- bits -----------------------------------------------------------------------------------------------------------


def bits(draw, count):
    """Integers in which every bit varies."""
    arrays = draw(broadcastable(count, [*SIGNED, *UNSIGNED], min_value=0, max_value=127))
    shift = np.uint64(64 - 8 * arrays[0].dtype.itemsize)
    with np.errstate(over="ignore"):
        mixed = [np.uint64(0x9E3779B97F4A7C15) * (a.astype(np.uint64) + np.uint64(1)) >> shift for a in arrays]
    return [m.astype(a.dtype) for m, a in zip(mixed, arrays, strict=True)]


for _bitwise, _count in ((ops.bitwise_and, 2), (ops.bitwise_or, 2), (ops.bitwise_xor, 2), (ops.bitwise_not, 1)):
    cases(_bitwise, gradient=False)(lambda draw, count=_count: call(*bits(draw, count)))


@cases(ops.bitshift, gradient=False)
def bitshift_cases(draw):
    x, y = draw(broadcastable(2, UNSIGNED, min_value=0, max_value=100))
    return call(x, y % 8, direction=draw(st.sampled_from(["LEFT", "RIGHT"])))


@cases(ops.bitshift, gradient=False)
def bitshift_cases_2(draw):
    """Signed numbers, and shifts by too many bits."""
    x, y = draw(broadcastable(2, SIGNED, min_value=-100, max_value=100))
    return call(x, y, direction=draw(st.sampled_from(["LEFT", "RIGHT"])))
