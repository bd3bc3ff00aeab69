"""Straight-through gradients of every quantized op, compared with finite differences of numpy formulas."""

from __future__ import annotations

import math

import numpy as np
import pytest

import tenonnx as tx
import tenonnx_standard as ops
from tenonnx.registry.discovery import plugins
from tenonnx_quantized import contrib_quantize, elementwise, ordered, pooling
from tenonnx_quantized.attention import qattention
from tenonnx_quantized.convolution import conv_integer, qlinear_conv, qlinear_conv_channels_last
from tenonnx_quantized.float_products import gemm_float8, matmul_fp4_weight, matmul_fp8_weight
from tenonnx_quantized.matrix import matmul_integer, qlinear_matmul
from tenonnx_quantized.ordered_attention import qordered_attention, qordered_longformer_attention
from tenonnx_quantized.packed_formats import matmul_packed
from tenonnx_quantized.products import dynamic_quantize_matmul, matmul_integer_to_float, qgemm
from tenonnx_quantized.quantize import dequantize_linear, dynamic_quantize_linear, quantize_linear
from tenonnx_testing.cases import collected, load

F32, F64, I8, U8 = np.float32, np.float64, np.int8, np.uint8
RANDOM = np.random.default_rng(0)
STEP, ZERO = F32(0.02), U8(128)  # parameters of the activations
RESULT = F32(0.05), U8(128)  # parameters of the results
WEIGHTS, OF_WEIGHTS = RANDOM.integers(-9, 10, (4, 6)).astype(I8), RANDOM.uniform(0.02, 0.1, 6).astype(F32)
FLOATS = WEIGHTS * OF_WEIGHTS.astype(F64)
BIAS = RANDOM.integers(-99, 100, 6).astype(np.int32)


def coded(x):
    """Quantize activations; return the quantized values, scale and zero point."""
    return quantize_linear(x, STEP, ZERO), STEP, ZERO


def int8(x):
    return quantize_linear(x, STEP, output_dtype=int(tx.DType.int8))


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def means(x):
    return (x[..., :-1, :-1] + x[..., 1:, :-1] + x[..., :-1, 1:] + x[..., 1:, 1:]) / 4


def heads(x):
    return x.reshape(*x.shape[:2], 2, -1).transpose(0, 2, 1, 3)


def attend(q, k, v):
    q, k, v = map(heads, (q, k, v))
    y = softmax(q @ k.transpose(0, 1, 3, 2) / math.sqrt(q.shape[-1])) @ v
    return y.transpose(0, 2, 1, 3).reshape(y.shape[0], y.shape[2], -1)


def gelu(x):
    return x * (1 + np.vectorize(math.erf)(x / math.sqrt(2))) / 2


def layer_norm(x):
    return (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-5)


PROJECTION = RANDOM.integers(-9, 10, (4, 12)).astype(I8)
OF_PROJECTION = F32(0.05)
ORDERED = {"order_input": 1, "order_output": 1}
#: Ops on quantized values. Each entry has a call on activations of shape [2, 3, 4] or the given one, whose result has
#: the parameters RESULT, and the same computation in floats.
BETWEEN_QUANTIZED = {
    "QLinearAdd": (lambda x: elementwise.qlinear_add(*coded(x), *coded(x), *RESULT), lambda x: x * 2),
    "QLinearMul": (
        lambda x: elementwise.qlinear_mul(*coded(x), U8([200]), STEP, ZERO, *RESULT),
        lambda x: x * 1.44,
    ),
    "QLinearSigmoid": (lambda x: elementwise.qlinear_sigmoid(*coded(x), *RESULT), sigmoid),
    "QLinearLeakyRelu": (
        lambda x: elementwise.qlinear_leaky_relu(*coded(x), *RESULT, alpha=0.1),
        lambda x: np.where(x > 0, x, x * F32(0.1)),
    ),
    "QLinearSoftmax": (lambda x: elementwise.qlinear_softmax(*coded(x), *RESULT, opset=13), softmax),
    "QLinearWhere": (
        lambda x: elementwise.qlinear_where(np.array([True, False] * 2), *coded(x), U8([7]), STEP, ZERO, *RESULT),
        lambda x: x * np.array([1, 0, 1, 0]),
    ),
    "QLinearConcat": (
        lambda x: elementwise.qlinear_concat(*RESULT, *coded(x), *coded(x), axis=1),
        lambda x: np.concatenate([x, x], 1),
    ),
    "QLinearAveragePool": (
        lambda x: pooling.qlinear_average_pool(*coded(x), *RESULT, kernel_shape=[2, 2]),
        means,
        (1, 2, 3, 4),
    ),
    "QLinearGlobalAveragePool": (
        lambda x: pooling.qlinear_global_average_pool(*coded(x), *RESULT),
        lambda x: x.mean((2, 3), keepdims=True),
        (1, 2, 3, 4),
    ),
    "QLinearReduceMean": (
        lambda x: pooling.qlinear_reduce_mean(*coded(x), *RESULT, axes=[1], keepdims=0),
        lambda x: x.mean(1),
    ),
    "QLinearMatMul": (
        lambda x: qlinear_matmul(*coded(x), WEIGHTS, OF_WEIGHTS, np.zeros(6, I8), *RESULT),
        lambda x: x @ FLOATS,
    ),
    "QGemm": (
        lambda x: qgemm(*coded(x), WEIGHTS, OF_WEIGHTS, np.zeros(6, I8), BIAS, *RESULT, alpha=0.5),
        lambda x: (x @ FLOATS + BIAS * (F64(STEP) * OF_WEIGHTS)) / 2,
        (3, 4),
    ),
    "QLinearConv": (
        lambda x: qlinear_conv(*coded(x), WEIGHTS.T.reshape(6, 4, 1, 1), OF_WEIGHTS, np.zeros(6, I8), *RESULT, BIAS),
        lambda x: np.einsum("nchw,co->nohw", x, FLOATS) + (BIAS * (F64(STEP) * OF_WEIGHTS))[:, None, None],
        (1, 4, 2, 3),
    ),
    "com.microsoft::QLinearConv": (
        lambda x: qlinear_conv_channels_last(
            *coded(x), WEIGHTS.T.reshape(6, 4, 1, 1), OF_WEIGHTS, np.zeros(6, I8), *RESULT, channels_last=1
        ),
        lambda x: x @ FLOATS,
        (1, 2, 3, 4),
    ),
}

#: Ops with int8 results of scale 0.05.
BETWEEN_SIGNED = {
    "QOrderedMatMul": (
        lambda x: ordered.qordered_matmul(
            int8(x), STEP, WEIGHTS.T.reshape(4, 6), OF_WEIGHTS, RESULT[0], order_A=1, order_B=0, order_Y=1
        ),
        lambda x: x @ FLOATS,
    ),
    "QOrderedGelu": (lambda x: ordered.qordered_gelu(int8(x), STEP, RESULT[0]), gelu),
    "QOrderedLayerNormalization": (
        lambda x: ordered.qordered_layer_normalization(int8(x), STEP, np.ones(4, F32), None, RESULT[0]),
        layer_norm,
    ),
    "QuantizeWithOrder": (
        lambda x: ordered.quantize_with_order(x, RESULT[0], order_input=1, order_output=1),
        lambda x: x,
    ),
}


def scaled_sums(x):
    quantized, scale, zero_point = dynamic_quantize_linear(x)
    return ops.cast(matmul_integer(quantized, WEIGHTS, zero_point), to=tx.DType.float32) * (scale * OF_WEIGHTS)


#: Ops that quantize activations dynamically, by their range.
DYNAMIC = {
    "DynamicQuantizeLinear": (lambda x: dequantize_linear(*dynamic_quantize_linear(x)), lambda x: x),
    "DynamicQuantizeMatMul": (
        lambda x: dynamic_quantize_matmul(x, WEIGHTS, OF_WEIGHTS, np.zeros(6, I8)),
        lambda x: x @ FLOATS,
    ),
    "MatMulInteger": (scaled_sums, lambda x: x @ FLOATS),
}


#: Ops with float results, or with integer sums that the test scales.
TO_FLOATS = {
    "QuantizeLinear": (lambda x: dequantize_linear(*coded(x)), lambda x: x),
    "com.microsoft::QuantizeLinear": (
        lambda x: contrib_quantize.dequantize_linear(contrib_quantize.quantize_linear(x, STEP, ZERO), STEP, ZERO),
        lambda x: x,
    ),
    "MatMulIntegerToFloat": (
        lambda x: matmul_integer_to_float(coded(x)[0], WEIGHTS, STEP, OF_WEIGHTS, ZERO),
        lambda x: x @ FLOATS,
    ),
    "MatMulInteger": (
        lambda x: ops.cast(matmul_integer(coded(x)[0], WEIGHTS, ZERO), to=1) * (STEP * OF_WEIGHTS),
        lambda x: x @ FLOATS,
    ),
    "ConvInteger": (
        lambda x: ops.cast(conv_integer(coded(x)[0], WEIGHTS.T.reshape(6, 4, 1, 1), ZERO), to=1) * STEP,
        lambda x: np.einsum("nchw,co->nohw", x, WEIGHTS.astype(F64)),
        (1, 4, 2, 3),
    ),
    "QAttention": (
        lambda x: qattention(coded(x)[0], PROJECTION, np.zeros(12, F32), STEP, OF_PROJECTION, None, ZERO, num_heads=2),
        lambda x: attend(*np.split(x @ (PROJECTION * F64(OF_PROJECTION)), 3, -1)),
    ),
    "DequantizeWithOrder": (
        lambda x: ordered.dequantize_with_order(int8(x), STEP, order_input=1, order_output=1, to=1),
        lambda x: x,
    ),
}


#: Ops without a gradient, or with one that is tested elsewhere, with the reason.
REASONS = {
    "DequantizeBFP": "reads a stream of bits",
    "DynamicQuantizeLSTM": "is made of DynamicQuantizeMatMul and MatMulIntegerToFloat",
    "GatherPacked": "takes the numbers of rows",
    "MatMulInteger16": "gives integers that no scale belongs to",
    "MoEPacked": "is made of the products of MatMulPacked and the routing of MoE",
    "MulInteger": "gives integers that no scale belongs to",
    "QEmbedLayerNormalization": "takes the numbers of words",
    "QuantizeBFP": "writes a stream of bits",
    "ReduceSumInteger": "gives integers that no scale belongs to",
}


FLOAT8 = RANDOM.uniform(-2, 2, (6, 4)).astype(tx.DType.float8e4m3fn.numpy)
PACKED = RANDOM.integers(0, 256, (6, 2)).astype(U8)
FLOAT4 = np.stack([PACKED & 15, PACKED >> 4], -1).reshape(6, 4).view(tx.DType.float4e2m1.numpy).astype(F64)
HALVES = np.full((6, 2), 0x30, U8)  # 0.5 in float8

PLAIN = np.random.default_rng(5).uniform(-1, 1, (6, 4)).astype(F32)

#: Products of float activations with float8 or float4 weights.
OF_FLOATS = {
    "GemmFloat8": (lambda x: gemm_float8(x, FLOATS.astype(F32), alpha=0.5), lambda x: x @ FLOATS / 2),
    "MatMulBlockQuantizedFp8Weight": (
        lambda x: matmul_fp8_weight(x, FLOAT8, np.full((6, 2), 0.5, F32), block_size=2),
        lambda x: x @ FLOAT8.astype(F64).T / 2,
    ),
    "MatMulPacked": (
        lambda x: matmul_packed(x, PLAIN.view(U8), K=4, N=6, packed_type=0),
        lambda x: x @ PLAIN.astype(F64).T,
    ),
    "MatMulBlockQuantizedFp4Weight": (
        lambda x: matmul_fp4_weight(x, PACKED, HALVES, F32(0.5), block_size=2),
        lambda x: x @ FLOAT4.T / 4,
    ),
}


def slope_of(build, x):
    """Return the gradient of the built graph with respect to activations, and the cotangent."""
    graph = tx.Graph(opsets={"ai.onnx": 21, "com.microsoft": 1})
    y = build(graph.input("x", "float32", x.shape))
    graph.output("y", y)
    cotangent = RANDOM.uniform(0.5, 1.5, y.shape).astype(F32)
    slope = tx.grad(graph, of=y.name, wrt="x", seeds={y.name: "g"})
    return slope.run({"x": x, "g": cotangent}, backend="numpy")["x/grad"], cotangent.astype(F64)


def differences(function, x, cotangent):
    """Gradient of a numpy function by central differences, one element at a time."""
    result = np.empty_like(x)
    for place in np.ndindex(x.shape):
        step = np.zeros_like(x)
        step[place] = 1e-5
        result[place] = ((function(x + step) - function(x - step)) * cotangent).sum() / 2e-5
    return result


def held(x, scale):
    """Return numbers quantized to 8 bits and dequantized, and a mask of those in range."""
    units = np.rint(x / F64(scale))
    return np.clip(units, -128, 127) * F64(scale), np.abs(units + 0.5) <= 127.5


def check(build, function, shape=(2, 3, 4), *, between=False, rounded=True, tolerance=2e-3):
    """Check that the gradient equals that in floats, where neither activations nor results saturate."""
    x = RANDOM.uniform(-2.9, 2.9, shape).astype(F32)
    result, cotangent = slope_of(build, x)
    numbers, inside = held(x, STEP) if rounded else (x.astype(F64), True)
    if between:
        cotangent = cotangent * held(function(numbers), RESULT[0])[1]
    expected = differences(function, numbers, cotangent) * inside
    assert np.any(expected)
    np.testing.assert_allclose(result, expected, rtol=tolerance, atol=tolerance * np.abs(expected).max())


@pytest.mark.parametrize("name", BETWEEN_QUANTIZED)
def test_between_quantized_values(name):
    build, *formula = BETWEEN_QUANTIZED[name]
    check(lambda x: dequantize_linear(build(x), *RESULT), *formula, between=True)


@pytest.mark.parametrize("name", BETWEEN_SIGNED)
def test_between_signed_quantized_values(name):
    build, formula = BETWEEN_SIGNED[name]
    rounded = name != "QuantizeWithOrder"
    check(lambda x: dequantize_linear(build(x), RESULT[0]), formula, between=True, rounded=rounded)


@pytest.mark.parametrize("name", TO_FLOATS)
def test_to_floats(name):
    check(*TO_FLOATS[name])


@pytest.mark.parametrize("name", OF_FLOATS)
def test_float_activations(name):
    check(*OF_FLOATS[name], (3, 4), rounded=False)


@pytest.mark.parametrize("name", DYNAMIC)
def test_dynamic_quantization(name):
    """The scale has a gradient with respect to the minimum and maximum activation, the zero point has none."""
    build, function = DYNAMIC[name]
    x = RANDOM.uniform(-2, 2, (2, 3, 4)).astype(F32)
    result, cotangent = slope_of(build, x)
    scale = F64(np.ptp(x)) / 255
    units = x / scale
    shift = np.rint(-x.min() / scale)
    quantized = np.clip(np.rint(units) + shift, 0, 255) - shift
    expected = differences(function, quantized * scale, cotangent)
    to_scale = (expected * (quantized - units)).sum()
    expected.reshape(-1)[[x.argmax(), x.argmin()]] += np.array([1, -1]) * to_scale / 255
    np.testing.assert_allclose(result, expected, rtol=2e-3, atol=2e-3 * np.abs(expected).max())


@pytest.mark.parametrize("longformer", [False, True])
def test_attention_of_quantized_values(longformer):
    """Rounding of intermediate products has a straight-through gradient, so results are close to those in floats."""
    weights = [RANDOM.integers(-60, 60, (4, 4)).astype(I8) for _ in "qkv"]
    fine = F32(0.04)

    def attention(x):
        parts = [w.T.reshape(4, 4).copy() for w in weights]
        of = [F32(0.01)] * 3
        return qordered_attention(
            int8(x),
            STEP,
            fine,
            fine,
            fine,
            *parts,
            *of,
            *[np.zeros(4, F32)] * 3,
            None,
            None,
            fine,
            num_heads=2,
            **ORDERED,
            order_weight=0,
        )

    def local(x):
        w, zeros = np.concatenate(weights, 1).T.reshape(4, 12).copy(), np.zeros(12, F32)
        one = F32(0.01)
        return qordered_longformer_attention(
            int8(x),
            STEP,
            w,
            one,
            zeros,
            one,
            fine,
            np.zeros((2, 3), F32),
            w,
            one,
            zeros,
            fine,
            np.zeros((2, 3), np.int32),
            fine,
            num_heads=2,
            window=5,
            **ORDERED,
            order_weight=0,
            order_global_weight=0,
        )

    floats = [w * 0.01 for w in weights]
    build = local if longformer else attention
    check(lambda x: dequantize_linear(build(x), fine), lambda x: attend(*(x @ w for w in floats)), tolerance=0.06)


def test_every_op_is_tested_or_exempt():
    """Every gradient is tested by a formula here or by the kit's finite differences, or exempt for a reason."""
    load(plugin for plugin in plugins("tenonnx.conformance") if plugin.value.startswith("tenonnx_quantized"))
    result = [case for case in collected() if case.op.__module__.startswith("tenonnx_quantized")]
    by_kit = {case.op.name for case in result if case.gradient is not False}
    here = {"QOrderedAttention", "QOrderedLongformerAttention"}
    for table in (BETWEEN_QUANTIZED, BETWEEN_SIGNED, TO_FLOATS, OF_FLOATS, DYNAMIC):
        here |= {name.split("::")[-1] for name in table}
    names = {case.op.name for case in result}
    assert names == here | by_kit | REASONS.keys()
    assert not REASONS.keys() & here
