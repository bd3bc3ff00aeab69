"""Cases of float8 and float4 products, without CPU kernels in runtimes; tests/test_formulas.py has numpy formulas."""

from __future__ import annotations

from hypothesis import strategies as st

from tenonnx.extend import DType
from tenonnx_quantized.cases.blocks import stacked
from tenonnx_quantized.float_products import gemm_float8, matmul_fp4_weight, matmul_fp8_weight
from tenonnx_testing import call, cases, shapes, tensors


def scale(draw):
    return draw(tensors("float32", shape=draw(st.sampled_from([(), (1,)])), min_value=0.5, max_value=2))


@cases(gemm_float8, gradient=False)
def gemm_float8_cases(draw):
    m, k, n = draw(shapes(3, 3))
    trans_a, trans_b = draw(st.integers(0, 1)), draw(st.integers(0, 1))
    kind = draw(st.sampled_from(["float8e4m3fn", "float8e5m2", "float16", "bfloat16", "float32"]))
    a, b = (draw(tensors(kind, shape=s)) for s in ((k, m) if trans_a else (m, k), (n, k) if trans_b else (k, n)))
    c = draw(tensors(["float16", "bfloat16", "float32"], shape=(m, n))) if draw(st.booleans()) else None
    result = draw(st.sampled_from(["float32", "float16", "bfloat16", "float8e4m3fn", "float8e5m2"]))
    scales = [scale(draw) for _ in range(3)] if draw(st.booleans()) else []
    return call(
        a,
        b,
        c,
        *scales,
        transA=trans_a,
        transB=trans_b,
        dtype=int(DType[result]),
        alpha=0.5,
        beta=draw(st.sampled_from([0.0, 2.0])),
        activation=draw(st.sampled_from([None, "NONE", "RELU", "GELU"])),
    )


def activations(draw, rows):
    """Draw activations, and a bias or None."""
    dtype, columns = draw(st.sampled_from(["float16", "bfloat16"])), draw(st.integers(1, 4))
    bias = draw(tensors(dtype, shape=(columns,))) if draw(st.booleans()) else None
    return stacked(draw, rows, dtype), columns, bias


@cases(matmul_fp8_weight, gradient=False)
def matmul_fp8_weight_cases(draw):
    rows, block = draw(st.sampled_from([8, 12])), draw(st.sampled_from([4, 8]))
    a, columns, bias = activations(draw, rows)
    weights = draw(tensors("float8e4m3fn", shape=(columns, rows)))
    scales = draw(tensors("float32", shape=(columns, -(-rows // block)), min_value=0.1, max_value=1))
    return call(a, weights, scales, scale(draw) if draw(st.booleans()) else None, bias, block_size=block)


@cases(matmul_fp4_weight, gradient=False)
def matmul_fp4_weight_cases(draw):
    rows, block = draw(st.sampled_from([8, 12])), draw(st.sampled_from([4, 8]))
    a, columns, bias = activations(draw, rows)
    weights = draw(tensors("uint8", shape=(columns, rows // 2), min_value=0, max_value=255))
    scales = draw(tensors("uint8", shape=(columns, -(-rows // block)), min_value=40, max_value=64))
    of_a = scale(draw) if draw(st.booleans()) else None
    return call(a, weights, scales, scale(draw), of_a, bias, block_size=block)
