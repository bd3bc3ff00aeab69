"""Cases of reductions."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from tenonnx_standard.reduction import (
    reduce_l1,
    reduce_l2,
    reduce_log_sum,
    reduce_log_sum_exp,
    reduce_max,
    reduce_mean,
    reduce_min,
    reduce_prod,
    reduce_sum,
    reduce_sum_square,
)
from tenonnx_testing import Gap, call, cases, tensors

FLOATS = ["float32", "float64", "float16", "bfloat16"]
NUMBERS = [*FLOATS, "int32", "int64", "uint32", "uint64"]


def reduction(draw, x):
    """A call that reduces ``x`` over some, all or no axes; axes may be negative."""
    axes = None
    if draw(st.booleans()):
        chosen = draw(st.lists(st.sampled_from(range(x.ndim)), unique=True)) if x.ndim else []
        axes = np.asarray([axis - draw(st.sampled_from([0, x.ndim])) for axis in chosen], np.int64)
    return call(x, axes, keepdims=draw(st.integers(0, 1)), noop_with_empty_axes=draw(st.integers(0, 1)))


@cases(reduce_sum)
def reduce_sum_cases(draw):
    return reduction(draw, draw(tensors(NUMBERS)))


@cases(reduce_mean)
def reduce_mean_cases(draw):
    return reduction(draw, draw(tensors(NUMBERS)))


@cases(reduce_prod)
def reduce_prod_cases(draw):
    return reduction(draw, draw(tensors(NUMBERS, max_rank=3, max_side=3, min_value=-2, max_value=2)))


@cases(reduce_max)
def reduce_max_cases(draw):
    return reduction(draw, draw(tensors([*NUMBERS, "uint8", "int8"], max_rank=3, max_side=4, distinct=True)))


@cases(reduce_max, gradient=False)
def reduce_max_cases_2(draw):
    return reduction(draw, draw(tensors("bool")))


@cases(reduce_min)
def reduce_min_cases(draw):
    return reduction(draw, draw(tensors([*NUMBERS, "uint8", "int8"], max_rank=3, max_side=4, distinct=True)))


@cases(reduce_min, gradient=False)
def reduce_min_cases_2(draw):
    return reduction(draw, draw(tensors("bool")))


@cases(reduce_l1)
def reduce_l1_cases(draw):
    return reduction(draw, draw(tensors(NUMBERS, exclude_near=(0.0,))))


@cases(reduce_l2)
def reduce_l2_cases(draw):
    return reduction(draw, draw(tensors(NUMBERS, exclude_near=(0.0,))))


AS_INT64 = Gap(
    "reference",
    "it returns 64-bit integers for 32-bit ones",
    when=lambda call: call.inputs[0].dtype.name in ("int32", "uint32"),
)


@cases(reduce_sum_square, gaps=[AS_INT64])
def reduce_sum_square_cases(draw):
    return reduction(draw, draw(tensors(NUMBERS)))


@cases(reduce_log_sum)
def reduce_log_sum_cases(draw):
    return reduction(draw, draw(tensors(NUMBERS, min_value=1)))


@cases(reduce_log_sum_exp)
def reduce_log_sum_exp_cases(draw):
    return reduction(draw, draw(tensors(FLOATS)))
