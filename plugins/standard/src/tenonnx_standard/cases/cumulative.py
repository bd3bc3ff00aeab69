"""Cases of cumulative sums and products."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from tenonnx_standard.cumulative import cumprod, cumsum
from tenonnx_testing import Gap, axis_of, call, cases, holds_negative_zero, tensors


def running(op, *gaps, **range_of_values):
    @cases(op, gaps=gaps)
    def op_cases(draw):
        dtypes = ["float32", "float64", "float16", "bfloat16", "int32", "int64", "uint32", "uint64"]
        x = draw(tensors(dtypes, min_rank=1, **range_of_values))
        axis = np.asarray(draw(axis_of(x)), draw(st.sampled_from(["int32", "int64"])))
        return call(x, axis, exclusive=draw(st.integers(0, 1)), reverse=draw(st.integers(0, 1)))


running(cumsum, Gap("special values", "its body begins with 0, and 0 + -0 is 0", when=holds_negative_zero))
running(cumprod, min_value=-2, max_value=2)
