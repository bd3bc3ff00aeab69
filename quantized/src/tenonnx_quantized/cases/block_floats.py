"""Cases of QuantizeBFP and DequantizeBFP. No runtime implements them, so tests compare them with formulas."""

from __future__ import annotations

import math

from hypothesis import strategies as st

from tenonnx_quantized.block_floats import dequantize_bfp, quantize_bfp
from tenonnx_testing import axis_of, call, cases, shapes, tensors


@cases(quantize_bfp, gradient=False)
def quantize_bfp_cases(draw):
    x = draw(tensors(["float32", "float16", "bfloat16"], min_rank=1, max_rank=3, max_side=20))
    return call(x, bfp_type=draw(st.integers(0, 1)), block_dim=draw(axis_of(x)))


@cases(dequantize_bfp, gradient=False)
def dequantize_bfp_cases(draw):
    kind, shape = draw(st.integers(0, 1)), draw(shapes(1, 3, 1, 20))
    axis = draw(st.integers(-len(shape), len(shape) - 1))
    boxes = math.prod(-(-d // 16) if k == axis % len(shape) else d for k, d in enumerate(shape))
    size = (19, 11)[kind]
    data = draw(tensors("uint8", shape=(boxes, size), min_value=0, max_value=255))
    data[:, 0] = data[:, 0] % 40 + 110
    strides = [math.prod(shape[k + 1 :]) for k in range(len(shape))]
    dtype = draw(st.sampled_from([1, 16]))
    return call(data.reshape(-1), list(shape), strides, bfp_type=kind, block_dim=axis, dtype=dtype)
