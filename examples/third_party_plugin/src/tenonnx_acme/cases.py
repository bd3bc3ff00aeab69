"""Conformance cases of the operators of Acme."""

from hypothesis import strategies as st

from tenonnx_acme import squareplus
from tenonnx_testing import call, cases, tensors


@cases(squareplus)
def squareplus_cases(draw):
    return call(draw(tensors(["float32", "float64"])), b=draw(st.sampled_from([0.5, 1.0, 4.0])))
