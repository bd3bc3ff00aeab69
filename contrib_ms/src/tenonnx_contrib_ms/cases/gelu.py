"""Cases of Gelu and its fused forms."""

from __future__ import annotations

from hypothesis import strategies as st

from tenonnx_contrib_ms.gelu import bias_gelu, bias_split_gelu, fast_gelu, gelu, quick_gelu
from tenonnx_testing import call, cases, tensors

FLOATS = ["float32", "float64", "float16", "bfloat16"]


@cases(gelu)
def gelu_cases(draw):
    return call(draw(tensors(FLOATS)))


@cases(bias_gelu)
def bias_gelu_cases(draw):
    x = draw(tensors(FLOATS, min_rank=1))
    return call(x, draw(tensors(x.dtype.name, shape=x.shape[-1:])))


@cases(fast_gelu)
def fast_gelu_cases(draw):
    """Without float64, for which onnxruntime's constants are not accurate enough."""
    x = draw(tensors(["float32", "float16", "bfloat16"], min_rank=1))
    return call(x, draw(tensors(x.dtype.name, shape=x.shape[-1:])) if draw(st.booleans()) else None)


@cases(quick_gelu)
def quick_gelu_cases(draw):
    return call(draw(tensors(FLOATS)), alpha=draw(st.sampled_from([1.702, 0.5, -1.0])))


@cases(bias_split_gelu)
def bias_split_gelu_cases(draw):
    batch, length, half = (draw(st.integers(1, 3)) for _ in range(3))
    x = draw(tensors(FLOATS, shape=(batch, length, 2 * half)))
    return call(x, draw(tensors(x.dtype.name, shape=(2 * half,))))
