"""QuantizeLinear and DequantizeLinear of com.microsoft: as in ai.onnx, with more types and without blocks."""

from __future__ import annotations

from tenonnx.extend import axis, dtypes, floats, op, same_dtype
from tenonnx_quantized import quantize
from tenonnx_quantized.granularity import scalar


def _along(parameter, axis):
    """Parameters along an axis; a single number without one."""
    return parameter if parameter is None or axis is not None else scalar(parameter)


@op("QuantizeLinear", domain="com.microsoft")
def quantize_linear(x, y_scale, y_zero_point=None, *, axis: int | None = None):
    """QuantizeLinear with one scale, or with one per position of ``axis``."""
    scale, zero_point = _along(y_scale, axis), _along(y_zero_point, axis)
    return quantize.quantize_linear(x, scale, zero_point, axis=1 if axis is None else axis)


@op("DequantizeLinear", domain="com.microsoft")
def dequantize_linear(x, x_scale, x_zero_point=None, *, axis: int | None = None):
    """DequantizeLinear with one scale, or with one per position of ``axis``."""
    scale, zero_point = _along(x_scale, axis), _along(x_zero_point, axis)
    return quantize.dequantize_linear(x, scale, zero_point, axis=1 if axis is None else axis)


quantize_linear.requires(
    axis("axis", of="x"),
    floats("x"),
    same_dtype("x", "y_scale"),
    dtypes(y_zero_point="int8 uint8 int16 uint16 int4 uint4"),
)
dequantize_linear.requires(axis("axis", of="x"), same_dtype("x", "x_zero_point"))
