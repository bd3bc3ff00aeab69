"""Products with 8-bit and 4-bit floats: GemmFloat8, and weights in blocks of FP8 and NVFP4."""

from __future__ import annotations

import tenonnx_standard as ops
from tenonnx.extend import DType, Value, at_least, dtypes, floats, holds, one_of, op, same_dtype, shapes
from tenonnx_quantized.formats import E2M1, float8, looked_up, unpacked
from tenonnx_quantized.granularity import repeated, scalar, wrong_blocks
from tenonnx_quantized.quantize import to, wide

_ACTIVATIONS = {None: lambda y: y, "": lambda y: y, "NONE": lambda y: y, "RELU": ops.relu, "GELU": ops.gelu}


@op("GemmFloat8", domain="com.microsoft")
def gemm_float8(
    A,
    B,
    C=None,
    scaleA=None,
    scaleB=None,
    scaleY=None,
    *,
    activation: str | None = None,
    alpha=1.0,
    beta=0.0,
    dtype=1,
    transA=0,
    transB=0,
):
    """``activation(alpha * A @ B + beta * C)``; float8 inputs are multiplied by their scale, the result divided by its.

    The product is accumulated in float32. ``scaleY`` is used for a float8 result.
    """
    a, b = (_scaled(x, scale) for x, scale in ((A, scaleA), (B, scaleB)))
    a = ops.transpose(a, perm=[1, 0]) if transA else a
    b = ops.transpose(b, perm=[1, 0]) if transB else b
    y = ops.matmul(a, b) * alpha
    if C is not None and beta:
        y = y + to(C, DType.float32) * beta
    y = _ACTIVATIONS[activation](y)
    if scaleY is not None and DType(dtype).bits == 8:
        y = y / scalar(scaleY)
    return to(y, DType(dtype))


gemm_float8.traits(on_request=True)


def _scaled(x: Value, scale: Value | None) -> Value:
    y = to(x, DType.float32)
    return y if scale is None or x.dtype.bits > 8 else y * scalar(scale)


gemm_float8.requires(
    floats("A", "B", "C"),
    dtypes(scaleA="float32", scaleB="float32", scaleY="float32"),
    shapes(A="_ _", B="_ _"),
    one_of(activation=[name for name in _ACTIVATIONS if name is not None], dtype=(1, 10, 16, 17, 19)),
)


@op("MatMulBlockQuantizedFp8Weight", domain="com.microsoft")
def matmul_fp8_weight(A, B, b_scale, a_scale=None, bias=None, *, block_size=128):
    """``A`` times the transpose of float8 weights ``[N, K]`` with a scale per block of ``K``.

    With ``a_scale``, ``A`` is also rounded to float8. The product is accumulated in float32.
    """
    x = to(A, wide(A.dtype))
    if a_scale is not None:
        x = to(ops.cast(x / scalar(a_scale), to=DType.float8e4m3fn), x.dtype) * scalar(a_scale)
    weights = to(B, x.dtype)
    return _product(A, x, weights * repeated(b_scale, weights, 1, block_size), bias)


matmul_fp8_weight.traits(on_request=True)


@op("MatMulBlockQuantizedFp4Weight", domain="com.microsoft")
def matmul_fp4_weight(A, B, weight_scale, weight_scale_2, input_scale=None, bias=None, *, block_size=16):
    """``A`` times the transpose of NVFP4 weights: two elements per byte, with a float8 scale for each block of a row.

    All weights are multiplied by ``weight_scale_2``. ``input_scale`` has no effect.
    """
    x = to(A, wide(A.dtype))
    weights = looked_up(unpacked(B, 4), E2M1, x.dtype)
    scale = looked_up(weight_scale, float8(), x.dtype)
    return _product(A, x, weights * scalar(weight_scale_2) * repeated(scale, weights, 1, block_size), bias)


matmul_fp4_weight.traits(on_request=True)


def _product(A: Value, x: Value, weights: Value, bias: Value | None) -> Value:
    y = ops.matmul(x, ops.transpose(weights, perm=[1, 0]))
    return to(y if bias is None else y + to(bias, y.dtype), A.dtype)


def _blocks(B, b_scale, block_size):
    return wrong_blocks("b_scale", b_scale, B.tensor.shape, 1, block_size)


def _blocks_of_bytes(B, weight_scale, block_size):
    if block_size % 2:
        return "block_size is odd, with two values in a byte"
    return wrong_blocks("weight_scale", weight_scale, B.tensor.shape, 1, block_size // 2)


matmul_fp8_weight.requires(
    shapes(A="... K", B="N K", b_scale="N _", a_scale="|1", bias="N"),
    floats("A"),
    same_dtype("A", "bias"),
    dtypes(B="float8e4m3fn", b_scale="float32", a_scale="float32"),
    at_least(block_size=1),
    holds(_blocks),
)
matmul_fp4_weight.requires(
    shapes(A="... _", B="N _", weight_scale="N _", weight_scale_2="|1", bias="N"),
    floats("A"),
    same_dtype("A", "bias"),
    dtypes(B="uint8", weight_scale="uint8", weight_scale_2="float32", input_scale="float32"),
    at_least(block_size=2),
    holds(_blocks_of_bytes),
)
