"""Cases of QuantizeLinear and DequantizeLinear of com.microsoft."""

from __future__ import annotations

from hypothesis import strategies as st

from tenonnx_quantized.contrib_quantize import dequantize_linear, quantize_linear
from tenonnx_testing import axis_of, call, cases, tensors

INTEGERS = ["uint8", "int8", "uint16", "int16", "uint4", "int4"]


def parameters(draw, x, kind, dtype):
    """Draw a scale, and a zero point or None, per tensor or per axis; and the axis."""
    axis = draw(st.one_of(st.none(), axis_of(x))) if x.ndim else None
    shape = draw(st.sampled_from([(), (1,)])) if axis is None else (x.shape[axis],)
    scale = draw(tensors(dtype, shape=shape, min_value=0.2, max_value=2))
    zero_point = draw(tensors(kind, shape=shape, min_value=-3, max_value=3)) if kind and draw(st.booleans()) else None
    return scale, zero_point, axis


@cases(quantize_linear, gradient=False, steps=1)
def quantize_linear_cases(draw):
    """With a tolerance of one step, since other implementations divide 16-bit floats in float32."""
    kind, dtype = draw(st.sampled_from(INTEGERS)), draw(st.sampled_from(["float32", "float32", "float16"]))
    x = draw(tensors(dtype, min_value=-20, max_value=20))
    scale, zero_point, axis = parameters(draw, x, kind, dtype)
    return call(x, scale, zero_point, axis=axis)


@cases(dequantize_linear, gradient=["x_scale"])
def dequantize_linear_cases(draw):
    kind = draw(st.sampled_from([*INTEGERS, "int32"]))
    x = draw(tensors(kind, min_value=-200, max_value=200))
    scale, zero_point, axis = parameters(draw, x, None if kind == "int32" else kind, "float32")
    return call(x, scale, zero_point, axis=axis)
