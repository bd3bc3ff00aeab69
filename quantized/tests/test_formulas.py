"""Ops without kernels in installed runtimes compared with numpy formulas, and formats with tables."""

from __future__ import annotations

import math

import ml_dtypes
import numpy as np
import pytest

from tenonnx_quantized.block_floats import dequantize_bfp, quantize_bfp
from tenonnx_quantized.blocks import gather_block_quantized, matmul_nbits, matmul_nbits_mlp, matmul_nbits_qkv
from tenonnx_quantized.float_products import gemm_float8, matmul_fp4_weight, matmul_fp8_weight
from tenonnx_quantized.formats import E2M1, float8, packed_array, unpacked_array
from tenonnx_quantized.fourbit import matmul_fpq4
from tenonnx_quantized.ordered import (
    dequantize_with_order,
    qordered_gelu,
    qordered_layer_normalization,
    qordered_matmul,
    quantize_with_order,
)
from tenonnx_quantized.ordered_attention import qordered_attention, qordered_longformer_attention
from tenonnx_quantized.pooling import qlinear_reduce_mean
from tenonnx_quantized.products import mul_integer, reduce_sum_integer

RANDOM = np.random.default_rng(0)


def integers(low, high, shape, dtype):
    return RANDOM.integers(low, high, shape, endpoint=True).astype(dtype)


def floats(low, high, shape=()):
    return RANDOM.uniform(low, high, shape).astype(np.float32)


def saturated(y):
    return np.clip(np.rint(y), -128, 127).astype(np.int8)


# ----- formats --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("bits", [2, 4, 8])
def test_values_are_packed_from_the_lowest_bits(bits):
    quantized = integers(0, (1 << bits) - 1, (3, 8), np.uint8)
    packed = packed_array(quantized, bits)
    for row, whole in zip(quantized, packed, strict=True):
        assert int.from_bytes(whole.tobytes(), "little") == sum(int(c) << bits * k for k, c in enumerate(row))
    np.testing.assert_array_equal(unpacked_array(packed, bits), quantized)


def test_tables_contain_every_value_of_a_format():
    np.testing.assert_array_equal(E2M1, np.arange(16, dtype=np.uint8).view(ml_dtypes.float4_e2m1fn).astype(np.float32))
    for code, value in enumerate(float8()):
        exponent, mantissa = code >> 3 & 15, code & 7
        expected = mantissa / 8 * 2**-6 if not exponent else (1 + mantissa / 8) * 2.0 ** (exponent - 7)
        expected = math.nan if code & 127 == 127 else expected
        assert value == (-1) ** (code >> 7) * expected or (math.isnan(value) and math.isnan(expected))


@pytest.mark.parametrize(
    "name", ["float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "float4_e2m1fn"]
)
def test_every_value_of_a_float_format_is_gathered(name):
    dtype = np.dtype(getattr(ml_dtypes, name))
    data = np.arange(16 if "4_" in name else 256, dtype=np.uint8).view(dtype)[None]
    y = gather_block_quantized(data, np.array([0]), np.float32([[2]]), block_size=0)
    np.testing.assert_array_equal(y, data.astype(np.float32) * 2)


def test_a_float_scale_is_read_from_its_bytes():
    scales = np.float32([1.5, -(2.0**-126), 2.0**-149, 3.0e38, 0.0, -0.1]).reshape(-1, 1)
    quantized = np.full((6, 16), 9 | 7 << 4, np.uint8)
    blob = np.concatenate([scales.view(np.uint8), quantized], axis=1).reshape(-1)
    y = matmul_fpq4(np.eye(32, dtype=np.float32)[[0, 31]], blob, [32, 6], blk_quant_type=0)
    np.testing.assert_array_equal(y, np.stack([scales[:, 0], -scales[:, 0]]))


@pytest.mark.parametrize("bits", [3, 5, 6, 7])
def test_odd_bit_widths_are_packed_as_a_bit_stream(bits):
    quantized = integers(0, (1 << bits) - 1, (2, 1, 16), np.uint8)
    stream = [sum(int(c) << bits * k for k, c in enumerate(row[0])).to_bytes(2 * bits, "little") for row in quantized]
    packed = np.frombuffer(b"".join(stream), np.uint8).reshape(2, 1, 2 * bits)
    scales = floats(0.1, 1, (2, 1))
    y = matmul_nbits(np.eye(16, dtype=np.float32), packed, scales, K=16, N=2, bits=bits, block_size=16)
    np.testing.assert_array_equal(y.T, (quantized[:, 0].astype(np.float32) - (1 << bits - 1)) * scales)


@pytest.mark.parametrize(("kind", "mantissa"), [(0, 8), (1, 4)])
@pytest.mark.parametrize("axis", [0, 1])
def test_blocks_share_an_exponent(kind, mantissa, axis):
    x = floats(-8, 8, (20, 33))
    data, shape, strides = quantize_bfp(x, bfp_type=kind, block_dim=axis)
    y = dequantize_bfp(data, shape, strides, bfp_type=kind, block_dim=axis)
    assert (shape.tolist(), strides.tolist()) == ([20, 33], [33, 1])
    for start in range(0, x.shape[axis], 16):
        box, result = (v.take(range(start, min(start + 16, x.shape[axis])), axis) for v in (x, y))
        step = 2.0 ** (np.floor(np.log2(np.abs(box).max(axis, keepdims=True))) + 1 - mantissa)
        greatest = ((1 << mantissa) - 1) * step
        np.testing.assert_array_equal(result, np.clip(np.rint(box / step) * step, -greatest, greatest))


# ----- integers and means ---------------------------------------------------------------------------------------------


def test_integer_products_and_sums():
    a, b = integers(0, 255, (3, 1), np.uint8), integers(0, 255, (2,), np.uint8)
    np.testing.assert_array_equal(mul_integer(a, np.uint8(9), b), (a.astype(np.int32) - 9) * b.astype(np.int32))
    np.testing.assert_array_equal(reduce_sum_integer(a, axes=[0], keepdims=1), a.sum(0, np.uint32, keepdims=True))


def test_mean_of_quantized_values():
    x = integers(-128, 127, (3, 4), np.int8)
    y = qlinear_reduce_mean(x, np.float32(0.5), np.int8(3), np.float32(0.25), np.int8(-4), axes=[1], keepdims=0)
    np.testing.assert_array_equal(y, saturated(np.rint((x.astype(np.float32) - 3).mean(1) * 0.5 / 0.25) - 4))


# ----- blocked weights ------------------------------------------------------------------------------------------------


def projection(rows, columns):
    packed, scales = integers(0, 255, (columns, rows // 32, 16), np.uint8), floats(0.01, 0.1, (columns, rows // 32))
    quantized = np.stack([packed & 15, packed >> 4], -1).reshape(columns, rows // 32, 32).astype(np.float32) - 8
    return packed, scales, (quantized * scales[..., None]).reshape(columns, rows)


def test_fused_projections():
    x, skip, weight = floats(-1, 1, (2, 3, 64)), floats(-1, 1, (2, 3, 64)), floats(0.5, 1, (64,))
    total = x + skip
    normal = total / np.sqrt((total**2).mean(-1, keepdims=True) + 1e-3) * weight
    layers = [projection(64, n) for n in (5, 4, 4)]
    bias = floats(-1, 1, (4,))
    (q_integers, q_scales, q), (k_integers, k_scales, k), (v_integers, v_scales, v) = layers
    common = {"K": 64, "block_size": 32, "epsilon": 1e-3}
    *result, kept = matmul_nbits_qkv(
        x,
        skip,
        weight,
        q_integers,
        q_scales,
        None,
        k_integers,
        k_scales,
        bias,
        v_integers,
        v_scales,
        None,
        Nq=5,
        Nkv=4,
        _outputs=4,
        **common,
    )
    for y, expected in zip(result, (normal @ q.T, normal @ k.T + bias, normal @ v.T), strict=True):
        np.testing.assert_allclose(y, expected, rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(kept, total)
    y = matmul_nbits_mlp(
        x, skip, weight, k_integers, k_scales, bias, v_integers, v_scales, None, N=4, activation="silu", **common
    )
    gate = normal @ k.T + bias
    np.testing.assert_allclose(y, gate / (1 + np.exp(-gate)) * (normal @ v.T), rtol=1e-4, atol=1e-5)


def test_blocks_of_64_in_one_blob():
    packed, scales = integers(0, 255, (3, 2, 2, 16), np.uint8), floats(-1, 1, (3, 2, 1))
    blob = np.concatenate([scales.view(np.uint8), packed.reshape(3, 2, 32)], -1).reshape(-1)
    quantized = np.concatenate([packed & 15, packed >> 4], -1).reshape(3, 2, 64).astype(np.float32) - 8
    y = matmul_fpq4(np.eye(128, dtype=np.float32), blob, [128, 3], blk_quant_type=2)
    np.testing.assert_array_equal(y.T, (quantized * scales).reshape(3, 128))


def test_float8_product():
    a, b = (floats(-2, 2, shape).astype(ml_dtypes.float8_e4m3fn) for shape in ((2, 3), (4, 3)))
    c, scale = floats(-1, 1, (2, 4)), np.float32(2)
    y = gemm_float8(a, b, c, scale, scale, scale, transB=1, beta=0.5, activation="RELU", dtype=17)
    exact = a.astype(np.float32) * 2 @ (b.astype(np.float32) * 2).T + c / 2
    np.testing.assert_array_equal(y, (np.maximum(exact, 0) / 2).astype(ml_dtypes.float8_e4m3fn))


def test_weights_of_eight_and_four_bit_floats():
    a = floats(-1, 1, (2, 8)).astype(np.float16)
    wide = a.astype(np.float32)
    weights = floats(-2, 2, (3, 8)).astype(ml_dtypes.float8_e4m3fn)
    scales = floats(0.5, 1, (3, 2))
    whole = weights.astype(np.float32) * np.repeat(scales, 4, 1)
    y = matmul_fp8_weight(a, weights, scales, np.float32(0.01), block_size=4)
    rounded = (wide / np.float32(0.01)).astype(ml_dtypes.float8_e4m3fn).astype(np.float32) * np.float32(0.01)
    np.testing.assert_allclose(y, (rounded @ whole.T).astype(np.float16), rtol=1e-3, atol=1e-3)
    packed, raw = integers(0, 255, (3, 4), np.uint8), integers(40, 60, (3, 2), np.uint8)
    values = np.stack([packed & 15, packed >> 4], -1).reshape(3, 8).view(ml_dtypes.float4_e2m1fn).astype(np.float32)
    whole = values * np.repeat(raw.view(ml_dtypes.float8_e4m3fn).astype(np.float32), 4, 1) * 0.5
    y = matmul_fp4_weight(a, packed, raw, np.float32(0.5), block_size=4)
    np.testing.assert_allclose(y, (wide @ whole.T).astype(np.float16), rtol=1e-3, atol=1e-3)


# ----- cublasLt layouts -----------------------------------------------------------------------------------------------

PLACES = {
    0: lambda r, c, rows, columns: c * rows + r,
    1: lambda r, c, rows, columns: r * columns + c,
    2: lambda r, c, rows, columns: c // 32 * 32 * rows + r * 32 + c % 32,
    3: lambda r, c, rows, columns: (
        ((c // 32) * (rows // 8) + r // 8) * 256 + r % 2 * 128 + c % 32 // 4 * 16 + r % 8 // 2 * 4 + c % 4
    ),
    4: lambda r, c, rows, columns: (
        ((c // 32) * (rows // 32) + r // 32) * 1024 + ((r % 8 // 2 * 4 + r % 32 // 8) * 2 + r % 2) * 32 + c % 32
    ),
}


def laid_out(x, order):
    memory = np.empty(x.size, x.dtype)
    for r in range(x.shape[0]):
        for c in range(x.shape[1]):
            memory[PLACES[order](r, c, *x.shape)] = x[r, c]
    return memory.reshape(x.shape)


@pytest.mark.parametrize("order", PLACES)
def test_layouts_put_each_element_where_the_formula_says(order):
    x = integers(-100, 100, (64, 64), np.int8)
    wide, one = x.astype(np.float32), np.float32(1)
    np.testing.assert_array_equal(quantize_with_order(wide, one, order_input=1, order_output=order), laid_out(x, order))
    back = dequantize_with_order(laid_out(x, order), one, order_input=order, order_output=1, to=1)
    np.testing.assert_array_equal(back, wide)


@pytest.mark.parametrize(("order", "order_b"), [(1, 0), (2, 3), (2, 4)])
def test_product_of_layouts(order, order_b):
    a, b, c = (integers(-99, 99, (32, 32), np.int8) for _ in range(3))
    scales = floats(0.01, 0.1, (3,))
    expected = saturated((a.astype(np.float32) @ b.astype(np.float32) * (scales[0] * scales[1]) + c * scales[2]) / 20)
    stored = laid_out(b, 0) if order == 1 else laid_out(b.T, order_b)
    y = qordered_matmul(
        laid_out(a, order)[None],
        scales[0],
        stored,
        scales[1],
        np.float32(20),
        None,
        laid_out(c, order)[None],
        scales[2],
        order_A=order,
        order_B=order_b,
        order_Y=order,
    )
    np.testing.assert_array_equal(y[0], laid_out(expected, order))


def test_elementwise_layouts():
    x, scale = integers(-99, 99, (2, 32), np.int8), np.float32(0.05)
    wide = x * scale
    erf = np.vectorize(math.erf)
    np.testing.assert_array_equal(
        qordered_gelu(x, scale, scale), saturated(wide * (1 + erf(wide / 2**0.5)) / 2 / scale)
    )
    weights = floats(0.5, 1, (32,))
    y = qordered_layer_normalization(laid_out(x, 2), scale, weights, None, scale, order_X=2, order_Y=2)
    normal = (wide - wide.mean(-1, keepdims=True)) / np.sqrt(wide.var(-1, keepdims=True) + 1e-5) * weights
    np.testing.assert_array_equal(y, laid_out(saturated(normal / scale), 2))


def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def as_quantized(x, scale):
    return saturated(x / scale).astype(np.float32) * scale


def split_heads(x, count):
    return x.reshape(*x.shape[:2], count, -1).transpose(0, 2, 1, 3)


def test_attention_of_quantized_values():
    x = integers(-99, 99, (2, 4, 6), np.int8)
    weights, biases = [integers(-99, 99, (6, 8), np.int8) for _ in "qkv"], [floats(-1, 1, (8,)) for _ in "qkv"]
    scales = [np.float32(s) for s in (0.01, 0.1, 0.1, 0.1, 0.02, 0.02, 0.02, 0.05, 0.008, 0.1)]
    mask = np.array([4, 2], np.int32)
    y = qordered_attention(
        x,
        *scales[:4],
        *(laid_out(w, 0) for w in weights),
        *scales[4:7],
        *biases,
        *scales[7:9],
        scales[9],
        mask,
        num_heads=2,
        order_input=1,
        order_output=1,
        order_weight=0,
    )
    q, k, v = (
        split_heads(as_quantized(x.astype(np.float32) @ w.astype(np.float32) * (scales[0] * s) + b, np.float32(0.1)), 2)
        for w, s, b in zip(weights, scales[4:7], biases, strict=True)
    )
    logits = as_quantized(q @ k.transpose(0, 1, 3, 2), scales[7]) / 2
    logits = np.where(np.arange(4) < mask[:, None, None, None], logits, np.finfo(np.float32).min)
    expected = as_quantized(softmax(logits), scales[8]) @ v
    np.testing.assert_array_equal(y, saturated(expected.transpose(0, 2, 1, 3).reshape(2, 4, 8) / scales[9]))


def test_longformer_attention_of_quantized_values():
    x = integers(-99, 99, (1, 5, 4), np.int8)
    weights, biases = [integers(-99, 99, (4, 12), np.int8) for _ in range(2)], [floats(-1, 1, (12,)) for _ in range(2)]
    scale, marked = np.float32(0.02), np.array([[0, 0, 0, 1, 0]], np.int32)
    mask = np.array([[0, 0, 0, 0, -10000]], np.float16)
    y = qordered_longformer_attention(
        x,
        scale,
        laid_out(weights[0], 0),
        scale,
        biases[0],
        scale,
        np.float32(0.1),
        mask,
        laid_out(weights[1], 0),
        scale,
        biases[1],
        np.float32(0.1),
        marked,
        np.float32(0.05),
        num_heads=2,
        window=1,
        order_input=1,
        order_output=1,
        order_weight=0,
        order_global_weight=0,
    )
    local, whole = (
        [
            split_heads(part, 2)
            for part in np.split(as_quantized(x.astype(np.float32) @ w * (scale * scale) + b, np.float32(0.1)), 3, -1)
        ]
        for w, b in zip(weights, biases, strict=True)
    )
    expected = np.zeros((1, 5, 4), np.float32)
    for place in range(5):
        (q, k, v), seen = local, [j for j in range(5) if abs(j - place) <= 1 or marked[0, j]]
        if marked[0, place]:
            (q, k, v), seen = whole, list(range(5))
        logits = np.einsum("hd,hkd->hk", q[0, :, place], k[0][:, seen]) / 2**0.5 + mask[0, seen].astype(np.float32)
        expected[0, place] = np.einsum("hk,hkd->hd", softmax(logits), v[0][:, seen]).reshape(-1)
    assert np.abs(y.astype(int) - saturated(expected / np.float32(0.05))).max() <= 1
