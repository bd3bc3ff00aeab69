"""Cases of IsInf and IsNaN."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from tenonnx_standard import float_classes as ops
from tenonnx_standard.cases.math import FLOATS, _numpy, unary
from tenonnx_testing import call, cases

unary(ops.isnan, gradient=False)
unary(ops.isinf, gradient=False)

SPECIAL = [float("nan"), float("inf"), float("-inf"), 0.0, -0.0, 1.5, -1.5]
TESTED = [*FLOATS, "float8e4m3fn", "float8e4m3fnuz", "float8e5m2", "float8e5m2fnuz"]


def special(draw, dtypes):
    numbers = draw(st.lists(st.sampled_from(SPECIAL), max_size=8))
    return np.asarray(numbers, np.float32).astype(_numpy(draw(st.sampled_from(dtypes))))


@cases(ops.isnan, gradient=False)
def isnan_cases(draw):
    return call(special(draw, TESTED))


@cases(ops.isinf, gradient=False)
def isinf_cases(draw):
    negative, positive = draw(st.sampled_from([(1, 1), (0, 1), (1, 0), (0, 0)]))
    return call(special(draw, TESTED), detect_negative=negative, detect_positive=positive)
