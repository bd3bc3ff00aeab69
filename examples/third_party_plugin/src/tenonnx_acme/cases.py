"""Conformance cases of the operators of Acme."""

import numpy as np
from hypothesis import strategies as st

from tenonnx_acme import squareplus
from tenonnx_testing import call, cases, tensors


@cases(squareplus, reference=lambda X, *, b: (X + np.sqrt(X * X + b)) / 2)  # numpy judges the body, too
def squareplus_cases(draw):
    return call(draw(tensors(["float32", "float64"])), b=draw(st.sampled_from([0.5, 1.0, 4.0])))
