"""Cases of gated activations."""

from __future__ import annotations

from hypothesis import strategies as st

from tenonnx_standard.gated_activation import swiglu
from tenonnx_testing import call, cases, shapes, tensors


@cases(swiglu)
def swiglu_cases(draw):
    dtype, shape = draw(st.sampled_from(["float32", "float64", "float16", "bfloat16"])), draw(shapes())
    alpha = draw(st.sampled_from([1.0, 0.5, 1.7]))
    return call(draw(tensors(dtype, shape=shape)), draw(tensors(dtype, shape=shape)), alpha=alpha)
