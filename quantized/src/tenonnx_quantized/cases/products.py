"""Cases of com.microsoft's products and sums of quantized values."""

from __future__ import annotations

from hypothesis import strategies as st

from tenonnx_quantized.cases.elementwise import EIGHT_BITS, parameters, quantized
from tenonnx_quantized.cases.matrix import matrices
from tenonnx_quantized.cases.quantize import seven_bits
from tenonnx_quantized.products import (
    dynamic_quantize_matmul,
    matmul_integer16,
    matmul_integer_to_float,
    mul_integer,
    qgemm,
    reduce_sum_integer,
)
from tenonnx_testing import Gap, broadcastable, call, cases, shapes, tensors


def column_parameters(draw, matrix, *, optional=True, columns=None):
    """Draw a scale, and a zero point or None, for the matrix or per column."""
    shape = draw(st.sampled_from([(), (1,), (matrix.shape[-1] if columns is None else columns,)]))
    scale = draw(tensors("float32", shape=shape, min_value=0.01, max_value=0.1))
    if optional and draw(st.booleans()):
        return scale, None
    return scale, draw(tensors(matrix.dtype.name, shape=shape, min_value=-200, max_value=200))


SCALED_BIAS = Gap(
    "onnxruntime",
    "where B is a stack of matrices with a scale for each column, onnxruntime multiplies the bias by the scale, too",
    when=lambda c: (
        c.inputs[1].ndim > 2
        and any(v is not None and v.ndim and v.size > 1 for v in c.inputs[2:4])
        and c.inputs[-1] is not None
    ),
)


def bias_of(draw, matrix):
    return draw(tensors("float32", shape=matrix.shape[-1:])) if draw(st.booleans()) else None


@cases(qgemm, gradient=False, steps=1)
def qgemm_cases(draw):
    m, k, n = draw(shapes(3, 3))
    kind = draw(st.sampled_from(EIGHT_BITS))
    trans_a, trans_b = draw(st.integers(0, 1)), draw(st.integers(0, 1))
    a = seven_bits(quantized(draw, (k, m) if trans_a else (m, k), kind))
    b = seven_bits(quantized(draw, (n, k) if trans_b else (k, n), draw(st.sampled_from(EIGHT_BITS))))
    c = None
    if draw(st.booleans()):
        c = draw(tensors("int32", shape=draw(st.sampled_from([(n,), (1, n), (m, n)])), min_value=-999, max_value=999))
    result = parameters(draw, kind, low=0.5, high=2) if draw(st.booleans()) else ()
    of_a, of_b = parameters(draw, kind), column_parameters(draw, b, optional=False, columns=n)
    alpha = draw(st.sampled_from([1.0, 0.5]))
    return call(a, *of_a, b, *of_b, c, *result, alpha=alpha, transA=trans_a, transB=trans_b)


@cases(matmul_integer_to_float, gradient=["a_scale", "b_scale", "bias"], gaps=[SCALED_BIAS])
def matmul_integer_to_float_cases(draw):
    a, b = matrices(draw, EIGHT_BITS, EIGHT_BITS)
    a_scale, a_zero_point = parameters(draw, a.dtype.name, optional=True)
    b_scale, b_zero_point = column_parameters(draw, b)
    return call(a, b, a_scale, b_scale, a_zero_point, b_zero_point, bias_of(draw, b))


@cases(dynamic_quantize_matmul, gradient=False, gaps=[SCALED_BIAS])
def dynamic_quantize_matmul_cases(draw):
    a, b = matrices(draw, "float32", EIGHT_BITS)
    return call(a, b, *column_parameters(draw, b), bias_of(draw, b))


@cases(matmul_integer16)
def matmul_integer16_cases(draw):
    kinds = ["int16", "uint16"]
    return call(*matrices(draw, kinds, kinds))


@cases(mul_integer)
def mul_integer_cases(draw):
    kind = draw(st.sampled_from(EIGHT_BITS))
    a, b = draw(broadcastable(2, kind, min_value=-200, max_value=200))
    zero_points = [parameters(draw, kind, optional=True)[1] for _ in range(2)]
    return call(a, zero_points[0], b, zero_points[1])


@cases(reduce_sum_integer)
def reduce_sum_integer_cases(draw):
    x = quantized(draw, min_rank=1)
    axes = draw(st.lists(st.integers(0, x.ndim - 1), min_size=1, unique=True))
    return call(x, axes=axes, keepdims=draw(st.integers(0, 1)))
