"""Weights in packed formats: decoding compared with independent formulas, products, and errors."""

import numpy as np
import pytest

import tenonnx as tx
from tenonnx_quantized.packed_formats import FORMATS, WITH_CODE_BOOKS, gather_packed, matmul_packed, moe_packed

RANDOM = np.random.default_rng(0)
UNEVEN = np.float32([-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113])


def half(b, at=0):
    return np.float32(b[at : at + 2].copy().view(np.float16)[0])


def halves(q):
    return np.concatenate([q & 15, q >> 4]).astype(np.int32)


def uneven_in_parts(b):
    high, result = int(b[2]) | int(b[3]) << 8, []
    for part in range(8):
        scale = (b[4 + part // 2] >> 4 * (part % 2)) & 15 | (high >> 2 * part & 3) << 4
        result.append(half(b) * (np.float32(scale) - 32) * UNEVEN[halves(b[8 + 16 * part : 24 + 16 * part])])
    return np.concatenate(result)


def five_bits_in_parts(b):
    s, result = b[4:16].astype(np.int32), []
    for part in range(8):
        if part < 4:
            scale, offset = s[part] & 63, s[part + 4] & 63
        else:
            scale = s[part + 4] & 15 | s[part - 4] >> 6 << 4
            offset = s[part + 4] >> 4 | s[part] >> 6 << 4
        quantized = (
            b[48 + 32 * (part // 2) : 80 + 32 * (part // 2)] >> 4 * (part % 2) & 15 | (b[16:48] >> part & 1) << 4
        )
        result.append(half(b) * np.float32(scale) * quantized.astype(np.float32) - half(b, 2) * np.float32(offset))
    return np.concatenate(result)


def six_bits_in_parts(b):
    result, scales = np.zeros(256, np.float32), b[192:208].view(np.int8).astype(np.float32)
    for place in range(256):
        n, k, rest = place // 128, place % 128 // 32, place % 32
        low = b[64 * n + 32 * (k % 2) + rest] >> 4 * (k // 2) & 15
        high = b[128 + 32 * n + rest] >> 2 * k & 3
        result[place] = half(b, 208) * scales[place // 16] * np.float32(int(low | high << 4) - 32)
    return result


FORMULAS = {
    0: lambda b: b.view(np.float32),
    1: lambda b: b.view(np.float16).astype(np.float32),
    2: lambda b: half(b) * np.float32(halves(b[2:]) - 8),
    6: lambda b: half(b) * np.float32(halves(b[6:]) + 16 * np.unpackbits(b[2:6], bitorder="little").astype(int) - 16),
    8: lambda b: half(b) * b[2:].view(np.int8).astype(np.float32),
    13: five_bits_in_parts,
    14: six_bits_in_parts,
    20: lambda b: half(b) * UNEVEN[halves(b[2:])],
    23: uneven_in_parts,
    30: lambda b: (b.view(np.uint16).astype(np.uint32) << 16).view(np.float32),
    42: lambda b: half(b) * np.float32([(int(q) >> s & 3) - 1 for q in b[2:] for s in (0, 2, 4, 6)]),
}


def packed(number, *outer, blocks=1):
    """Draw packed blocks with scales of 0.01, or floats of this magnitude."""
    form = FORMATS[number]
    made = RANDOM.integers(0, 256, (*outer, blocks, form.size), dtype=np.uint8)
    if number in (0, 1, 30):
        made[..., -1] = made[..., -1] % 2 * 128 + (0x3C if number != 1 else 0x30)
    for at in {0: (), 1: (), 13: (0, 2), 14: (208,), 30: ()}.get(number, (0,)):
        made[..., at : at + 2] = np.frombuffer(np.float16(0.01).tobytes(), np.uint8)
    return made.reshape(*outer, -1)


def numbers(number, rows):
    size = FORMATS[number].size
    return np.stack([np.concatenate([FORMULAS[number](b) for b in row.reshape(-1, size)]) for row in rows])


@pytest.mark.parametrize("number", FORMATS)
def test_each_format_is_decoded(number):
    """Out-of-range indices read the first row."""
    table = packed(number, 5, blocks=2)
    columns = 2 * FORMATS[number].count
    result = gather_packed(table, np.array([[4, 0], [7, -1]]), K=columns, packed_type=number, output_dtype=1)
    np.testing.assert_array_equal(result, numbers(number, table)[[[4, 0], [0, 0]]])


def test_extreme_values_of_float_formats():
    ends = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 6e-8, 65504], np.float16)
    table = ends[:, None].view(np.uint8)
    result = gather_packed(table, np.arange(7), K=1, packed_type=1, output_dtype=1)[:, 0]
    np.testing.assert_array_equal(result, ends.astype(np.float32))
    assert np.signbit(result[1])


@pytest.mark.parametrize("number", [2, 14, 30])
def test_products_with_packed_weights(number):
    blocks = 256 // FORMATS[number].count
    weights, x = packed(number, 3, blocks=blocks), RANDOM.uniform(-1, 1, (2, 256)).astype(np.float16)
    rounded = numbers(number, weights).astype(np.float16).astype(np.float32)
    y = (x.astype(np.float32) @ rounded.T).astype(np.float16)
    result = matmul_packed(x, weights, K=256, N=3, packed_type=number, activation_type="relu2")
    np.testing.assert_allclose(result, np.maximum(y, 0) ** 2, rtol=2e-2, atol=2e-3)


@pytest.mark.parametrize("apart", [False, True])
def test_mixtures_of_packed_experts(apart):
    """Compare token by token, with the two best of three experts."""
    x = RANDOM.uniform(-1, 1, (4, 32)).astype(np.float16)
    logits = RANDOM.normal(size=(4, 3)).astype(np.float32)
    shares = RANDOM.uniform(0.1, 1, (4, 3)).astype(np.float32) if apart else None
    gate, up, down = (packed(8, 3, 32) for _ in range(3))
    options = {"routed_scaling_factor": 2.0, "routing_epsilon": 0.25} if apart else {}
    result = moe_packed(x, logits, gate, up, down, shares, gate_type=8, up_type=8, down_type=8, k=2, **options)
    layers = [
        np.stack([numbers(8, e) for e in each]).astype(np.float16).astype(np.float64) for each in (gate, up, down)
    ]
    for token, row in enumerate(x.astype(np.float64)):
        best = np.argsort(-logits[token])[:2]
        weight = shares[token] if apart else np.exp(logits[token]) / np.exp(logits[token]).sum()
        weight = weight[best] / (weight[best].sum() + (0.25 if apart else 0)) * (2 if apart else 1)
        total = 0
        for expert, w in zip(best, weight, strict=True):
            g = layers[0][expert] @ row
            total = total + w * (layers[2][expert] @ (g / (1 + np.exp(-g)) * (layers[1][expert].astype(float) @ row)))
        np.testing.assert_allclose(result[token], total, rtol=2e-2, atol=2e-2)


@pytest.mark.parametrize(
    ("attributes", "said"),
    [
        *(({"packed_type": number, "K": 256}, "a code book") for number in WITH_CODE_BOOKS),
        ({"packed_type": 3, "K": 32}, "is not one of 0, 1, 2"),
        ({"packed_type": 2, "K": 33}, "whole blocks of 32"),
        ({"packed_type": 2, "K": 64}, "do not have 36 bytes"),
        ({"packed_type": 2, "K": 32, "output_dtype": 7}, "unknown output_dtype"),
    ],
)
def test_invalid_calls_are_rejected(attributes, said):
    with pytest.raises(tx.TenonnxError, match=said):
        gather_packed(np.zeros((2, 18), np.uint8), np.zeros(1, np.int64), **attributes)
