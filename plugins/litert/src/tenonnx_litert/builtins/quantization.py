"""QUANTIZE and DEQUANTIZE. Scale and zero point are inputs here; in a file, they belong to the quantized tensor."""

from __future__ import annotations

import tenonnx_standard as ops
from tenonnx.extend import DType
from tenonnx_litert.builtins.builtin import builtin

RANGES = {
    DType.int8: (-128, 127),
    DType.uint8: (0, 255),
    DType.int16: (-32768, 32767),
    DType.uint16: (0, 65535),
}


@builtin("QUANTIZE", elementwise=True, pure=False)
def quantize(x, scale, zero_point):
    """Round ``x / scale + zero_point`` to the type of the zero point; the parameters broadcast to ``x``."""
    low, high = RANGES[zero_point.dtype]
    steps = ops.round_(x / scale) + ops.cast(zero_point, to=DType.float32)
    return ops.cast(ops.clip(steps, float(low), float(high)), to=zero_point.dtype)


@builtin("rounded_as_it_runs", elementwise=True, pure=False)
def rounded_as_it_runs(x):
    """``x``, to be quantized per row by a hybrid kernel. Not an operator of the format: writing drops it."""
    return ops.identity(x)


@builtin("DEQUANTIZE", elementwise=True, pure=False)
def dequantize(x, scale, zero_point):
    """``(x - zero_point) * scale``. Constants are never folded, so that files keep quantized weights."""
    return ops.cast(ops.cast(x, to=DType.int32) - ops.cast(zero_point, to=DType.int32), to=DType.float32) * scale
