"""Products and sums of quantized values: QGemm, MatMulIntegerToFloat, DynamicQuantizeMatMul and integer ops."""

from __future__ import annotations

import tenonnx_standard as ops
from tenonnx.extend import REQUIRED, DType, dtypes, floats, holds, op, same_dtype, shapes, together
from tenonnx_quantized.granularity import is_single, scalar
from tenonnx_quantized.matrix import by_column, by_row, matmul_integer
from tenonnx_quantized.qlinear import bias_numbers, numbers, requantized
from tenonnx_quantized.quantize import dynamic_quantize_linear, to


@op("QGemm", domain="com.microsoft")
def qgemm(
    A,
    a_scale,
    a_zero_point,
    B,
    b_scale,
    b_zero_point,
    C=None,
    y_scale=None,
    y_zero_point=None,
    *,
    alpha=1.0,
    transA=0,
    transB=0,
):
    """``alpha * A @ B + C`` of quantized matrices, quantized by ``y_scale``, or in float32 without one.

    ``C`` is int32 in units of ``alpha * a_scale * b_scale``; ``B`` may have parameters per column.
    """
    a = ops.transpose(A, perm=[1, 0]) if transA else A
    b = ops.transpose(B, perm=[1, 0]) if transB else B
    sums = matmul_integer(a, b, scalar(a_zero_point), by_column(b_zero_point))
    if C is not None:
        sums = sums + C
    y = to(sums, DType.float32) * (scalar(a_scale) * by_column(b_scale) * alpha)
    return y if y_scale is None else requantized(y, y_scale, y_zero_point, A)


@qgemm.vjp(surrogate=True)
def qgemm_vjp(A, a_scale, a_zero_point, B, b_scale, b_zero_point, C, y_scale, y_zero_point, *, alpha, transA, transB):
    a, b = numbers(A, a_scale, a_zero_point, 0), numbers(B, b_scale, b_zero_point, 0 if transB else 1)
    if a is None or b is None or (C is not None and not is_single(b_scale) and C.rank != 1):
        return None
    c = bias_numbers(C, a_scale, b_scale)
    y = ops.gemm(a, b, c, alpha=alpha, beta=alpha, transA=transA, transB=transB)
    return y if y_scale is None else requantized(y, y_scale, y_zero_point, A)


@op("MatMulIntegerToFloat", domain="com.microsoft")
def matmul_integer_to_float(A, B, a_scale, b_scale, a_zero_point=None, b_zero_point=None, bias=None):
    """The matrix product of dequantized values, plus ``bias``."""
    sums = matmul_integer(A, B, a_zero_point, b_zero_point)
    y = to(sums, a_scale.dtype) * (by_row(a_scale) * by_column(b_scale))
    return y if bias is None else y + bias


@matmul_integer_to_float.vjp(surrogate=True)
def matmul_integer_to_float_vjp(A, B, a_scale, b_scale, a_zero_point, b_zero_point, bias):
    a, b = numbers(A, a_scale, a_zero_point, -2), numbers(B, b_scale, b_zero_point, -1)
    if a is None or b is None:
        return None
    return ops.matmul(a, b) if bias is None else ops.matmul(a, b) + bias


@op("DynamicQuantizeMatMul", domain="com.microsoft")
def dynamic_quantize_matmul(A, B, b_scale, b_zero_point=None, bias=None):
    """The matrix product of ``A``, quantized by DynamicQuantizeLinear, and dequantized ``B``."""
    quantized, scale, zero_point = dynamic_quantize_linear(A)
    return matmul_integer_to_float(quantized, B, scale, b_scale, zero_point, b_zero_point, bias)


@op("MatMulInteger16", domain="com.microsoft")
def matmul_integer16(A, B):
    """The matrix product of 16-bit integers in 32 bits, unsigned only if both are unsigned."""
    wide = DType.uint32 if A.dtype is B.dtype is DType.uint16 else DType.int32
    return ops.matmul(to(A, wide), to(B, wide))


@op("MulInteger", domain="com.microsoft")
def mul_integer(A, A_zero_point=None, B=REQUIRED, B_zero_point=None):
    """The product of quantized values minus their zero points, in int32."""
    a, b = to(A, DType.int32), to(B, DType.int32)
    if A_zero_point is not None:
        a = a - to(scalar(A_zero_point), DType.int32)
    if B_zero_point is not None:
        b = b - to(scalar(B_zero_point), DType.int32)
    return a * b


mul_integer.traits(on_request=True)


@op("ReduceSumInteger", domain="com.microsoft")
def reduce_sum_integer(data, *, axes: list[int], keepdims: int):
    """The sum over ``axes`` in int32 or uint32, according to the input."""
    wide = DType.int32 if data.dtype.is_signed else DType.uint32
    return ops.reduce_sum(to(data, wide), axes, keepdims=keepdims)


reduce_sum_integer.traits(on_request=True)


_EIGHT_BITS = "int8 uint8"

qgemm.requires(
    shapes(A="_ _", B="_ _", a_scale="|1", a_zero_point="|1", y_scale="|1", y_zero_point="|1"),
    dtypes(A=_EIGHT_BITS, B=_EIGHT_BITS, y_zero_point=_EIGHT_BITS, C="int32"),
    dtypes(a_scale="float32", b_scale="float32", y_scale="float32"),
    same_dtype("A", "a_zero_point"),
    same_dtype("B", "b_zero_point"),
    together("y_scale", "y_zero_point"),
)


def _scales_of_vectors(A, B, a_scale, b_scale):
    """Reason why rows or columns of a vector cannot have scales of their own, or None."""
    if (A.rank == 1 and a_scale.rank) or (B.rank == 1 and b_scale.rank):
        return "a_scale or b_scale is not one number, with a vector as A or B"
    return None


matmul_integer_to_float.requires(
    dtypes(A=_EIGHT_BITS, B=_EIGHT_BITS),
    floats("a_scale"),
    same_dtype("a_scale", "b_scale", "bias"),
    same_dtype("A", "a_zero_point"),
    same_dtype("B", "b_zero_point"),
    holds(_scales_of_vectors),
)
dynamic_quantize_matmul.requires(
    floats("A"),
    same_dtype("A", "b_scale", "bias"),
    dtypes(B=_EIGHT_BITS),
    same_dtype("B", "b_zero_point"),
)
mul_integer.requires(
    dtypes(A=_EIGHT_BITS, B=_EIGHT_BITS),
    same_dtype("A", "A_zero_point"),
    same_dtype("B", "B_zero_point"),
    shapes(A_zero_point="|1", B_zero_point="|1"),
)
