"""Cases of running sums and products."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from tenonnx_standard.cumulative import cumprod, cumsum
from tenonnx_testing import axis_of, call, cases, tensors


def running(op, **range_of_values):
    @cases(op)
    def _(draw):
        dtypes = ["float32", "float64", "float16", "bfloat16", "int32", "int64", "uint32", "uint64"]
        x = draw(tensors(dtypes, min_rank=1, **range_of_values))
        axis = np.asarray(draw(axis_of(x)), draw(st.sampled_from(["int32", "int64"])))
        return call(x, axis, exclusive=draw(st.integers(0, 1)), reverse=draw(st.integers(0, 1)))


running(cumsum)
running(cumprod, min_value=-2, max_value=2)
