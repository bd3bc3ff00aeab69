"""Attention ops without CPU kernels in onnxruntime, compared with numpy formulas based on their documentation."""

from __future__ import annotations

import math

import numpy as np
import onnx
import onnxruntime
import pytest

from tenonnx_contrib_ms import attention, decoder, multi_head, paged, position_bias, remove_padding, rotary, sparse

RANDOM = np.random.default_rng(7)


def some(*shape):
    return RANDOM.uniform(-1, 1, shape).astype(np.float32)


def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def one_by_one(q, k, v, added, scale=None):
    """Attention of one sequence of shape (length, heads, size), one query and head at a time."""
    y = np.zeros((*q.shape[:2], v.shape[2]), np.float64)
    for head in range(q.shape[1]):
        for row in range(q.shape[0]):
            scores = k[:, head].astype(np.float64) @ q[row, head] * (scale or q.shape[2] ** -0.5)
            y[row, head] = softmax(scores + added[head, row]) @ v[:, head]
    return y.reshape(len(q), -1)


def close(actual, expected, tolerance=1e-5):
    np.testing.assert_allclose(actual, expected, rtol=tolerance, atol=tolerance)


COUNTS, LENGTH = [2, 4, 1], 4
OFFSET = np.array([0, 1, 4, 5, 6, 7, 8, 2, 3, 9, 10, 11], np.int32).reshape(3, 4)
SUMS = np.array([0, 2, 6, 7], np.int32)


def test_padding_is_removed_and_restored():
    x = some(3, 4, 2)
    tokens, offset, sums, longest = remove_padding.remove_padding(x, np.array(COUNTS, np.int32))
    assert [x.tolist() for x in (offset, sums, longest)] == [OFFSET.tolist(), SUMS.tolist(), [4]]
    close(tokens, np.concatenate([x[b, :n] for b, n in enumerate(COUNTS)]))
    back = remove_padding.restore_padding(tokens, offset)
    close(back, np.where((np.arange(4) < np.array(COUNTS)[:, None])[..., None], x, 0))


@pytest.mark.parametrize("scale", [0.0, 0.4])
def test_packed_attention(scale):
    x, weights, bias, more = some(7, 3), some(3, 20), some(20), some(1, 2, 4, 4)
    flat = x @ weights + bias
    q, k, v = flat[:, :8].reshape(7, 2, 4), flat[:, 8:16].reshape(7, 2, 4), flat[:, 16:].reshape(7, 2, 2)
    spans = [slice(SUMS[b], SUMS[b + 1]) for b in range(3)]
    expected = [one_by_one(q[s], k[s], v[s], more[0, :, : s.stop - s.start, : s.stop - s.start], scale) for s in spans]
    attributes = {"num_heads": 2, "scale": scale}
    y = remove_padding.packed_attention(x, weights, bias, OFFSET, SUMS, more, qkv_hidden_sizes=[8, 8, 4], **attributes)
    close(y, np.concatenate(expected))
    parts = [flat[:, :8] - bias[:8], flat[:, 8:16] - bias[8:16], flat[:, 16:] - bias[16:]]
    close(
        remove_padding.packed_multi_head_attention(*parts, bias, OFFSET, SUMS, more, **attributes),
        np.concatenate(expected),
    )


def test_packed_query_key_value():
    x = some(7, 2, 3, 4)
    spans = [slice(SUMS[b], SUMS[b + 1]) for b in range(3)]
    expected = [one_by_one(*(x[s, :, k] for k in range(3)), np.zeros((2, 4, 1))) for s in spans]
    y = remove_padding.packed_multi_head_attention(x, None, None, None, OFFSET, SUMS, num_heads=2)
    close(y, np.concatenate(expected))


def test_gated_position_bias():
    query, bias, positions = some(2, 3, 8), some(8), some(1, 2, 3, 3)
    weight, weight_bias, constant = some(4, 6), some(6), some(1, 2, 1, 1)
    y = remove_padding.gated_relative_position_bias(query, bias, positions, weight, weight_bias, constant, num_heads=2)
    for b, head, row in np.ndindex(2, 2, 3):
        gates = (query[b, row] + bias).reshape(2, 4)[head] @ weight + weight_bias
        update, reset = 1 / (1 + np.exp(-gates.reshape(2, 3).sum(1)))
        factor = update * (reset * constant[0, head, 0, 0] - 1) + 2
        close(y[b, head, row], factor * positions[0, head, row])


@pytest.mark.parametrize("both", [0, 1])
def test_relative_position_bias(both):
    """Buckets as in T5; the table is stored by head."""
    buckets, heads, furthest = 12, 2, 40
    table = some(buckets, heads)
    y = position_bias.relative_position_bias(
        table, np.array([50]), np.array([60]), max_distance=furthest, is_bidirectional=both
    )
    by_head = table.reshape(heads, buckets)
    for row, column in [(0, 0), (3, 5), (5, 3), (20, 1), (49, 2), (2, 49), (30, 27), (0, 59)]:
        half = buckets // 2 if both else buckets
        ahead = column - row
        bucket = half if both and ahead > 0 else 0
        distance = abs(ahead) if both else max(-ahead, 0)
        near = half // 2
        if distance >= near:
            distance = min(near + int(math.log(distance / near) / math.log(furthest / near) * (half - near)), half - 1)
        close(y[0, :, row, column], by_head[:, bucket + distance])


def test_gemma_rotary_embedding():
    angles, *turned = some(2, 3, 4), *(some(2, n, 3, 4) for n in (2, 2, 1, 1))
    q, k = rotary.gemma_rotary_embedding(angles, *turned)
    for result, x, rotated in ((q, *turned[:2]), (k, *turned[2:])):
        for head in range(x.shape[1]):
            close(result[:, head], x[:, head] * np.cos(angles) + rotated[:, head] * np.sin(angles))


def test_longformer():
    x, weight, bias, other, other_bias = some(1, 8, 3), some(3, 12), some(12), some(3, 12), some(12)
    mask, chosen = np.float32([[0, 0, 0, -20, 0, 0, 0, 0]]), np.int32([[0, 0, 0, 0, 0, 0, 1, 0]])
    y = sparse.longformer_attention(x, weight, bias, mask, other, other_bias, chosen, num_heads=2, window=2)
    for row in range(8):
        if chosen[0, row]:
            q, k, v = np.split((x[0] @ other + other_bias).reshape(8, 6, 2), 3, axis=1)
            seen = range(8)
        else:
            q, k, v = np.split((x[0] @ weight + bias).reshape(8, 6, 2), 3, axis=1)
            seen = [column for column in range(8) if abs(column - row) <= 2 or chosen[0, column]]
        added = np.broadcast_to(mask[0, seen], (2, 1, len(seen)))
        close(y[0, row], one_by_one(q[row : row + 1], k[seen], v[seen], added)[0])


@pytest.mark.parametrize("static", [False, True])
@pytest.mark.parametrize("past", [False, True])
@pytest.mark.parametrize("masked", [False, True])
def test_decoder_attention(static, past, masked):
    query, key, q_weight, kv_weight, bias = some(2, 1, 4), some(5, 1, 4), some(4, 4), some(4, 8), some(12)
    caches = [some(1, 2, 3, 2) for _ in range(2)]
    q = (query[:, 0] @ q_weight + bias[:4]).reshape(-1, 2, 2)
    source = key if static else query
    k, v = (x.reshape(-1, 2, 2) for x in np.split(source[:, 0] @ kv_weight + bias[4:], 2, axis=1))
    if past:
        before = [cache[0].transpose(1, 0, 2) for cache in caches]
        k, v = before if static else (np.concatenate([b, x]) for b, x in zip(before, (k, v), strict=True))
    mask = np.arange(len(k))[None] == 1
    y, *held = decoder.decoder_attention(
        query,
        key,
        q_weight,
        kv_weight,
        bias,
        mask,
        *caches,
        *(np.array([f]) for f in (static, past, past, masked)),
        num_heads=2,
        mask_filter_value=-30.0,
    )
    added = np.broadcast_to(np.where(mask & masked, -30, 0), (2, 2, len(k)))
    close(y[:, 0], one_by_one(q, k, v, added))
    close(held[0][0], k.transpose(1, 0, 2))
    close(held[1][0], v.transpose(1, 0, 2))


def test_decoder_masked_self_attention():
    """Two beams, whose keys are stored in chunks of four elements."""
    x, weights, bias, values = some(2, 1, 3), some(3, 24), some(24), some(2, 1, 5, 8)
    keys, before, made_in = some(2, 1, 5, 8), 2, np.array([[[0, 0, 9, 9, 9], [0, 1, 9, 9, 9]]], np.int32)
    in_pieces = keys.reshape(2, 1, 5, 2, 4).transpose(0, 1, 3, 2, 4).reshape(2, 1, 5, 8)
    y, present = decoder.decoder_masked_self_attention(
        x,
        weights,
        bias,
        None,
        np.stack([in_pieces, values]),
        None,
        np.array([before], np.int32),
        np.array([2], np.int32),
        made_in,
        num_heads=1,
        past_present_share_buffer=1,
    )
    for b in range(2):
        q, k, v = np.split(x[b] @ weights + bias, 3, axis=1)
        past = [[cache[made_in[0, b, t], 0, t] for t in range(before)] for cache in (keys, values)]
        k_all, v_all = (np.concatenate([p, n])[:, None] for p, n in zip(past, (k, v), strict=True))
        close(y[b], one_by_one(q[:, None], k_all, v_all, np.zeros((1, 1, 3))))
        close(present[1, b, 0, before], v[0])
        close(present[0, b, 0].reshape(2, 5, 4)[:, before].reshape(-1), k[0])


def test_attention_without_bias():
    """onnxruntime's kernel reads out of bounds without a bias."""
    x, weights = some(1, 3, 4), some(4, 12)
    q, k, v = np.split((x[0] @ weights).reshape(3, 6, 2), 3, axis=1)
    close(attention.attention(x, weights, num_heads=2, _outputs=1)[0], one_by_one(q, k, v, np.zeros((2, 3, 1))))


def test_attention_with_rotation():
    x, weights, bias, past = some(1, 2, 3), some(3, 12), some(12), some(2, 1, 1, 3, 4)
    y, present = attention.attention(x, weights, bias, None, past, num_heads=1, do_rotary=1)
    q, k, v = np.split(x[0] @ weights + bias, 3, axis=1)

    def turned(row, position):
        angles = position * 10000.0 ** (-np.arange(2) / 2)
        a, b = row[:2], row[2:]
        return np.concatenate([a * np.cos(angles) - b * np.sin(angles), a * np.sin(angles) + b * np.cos(angles)])

    q, k = (np.stack([turned(row, 3 + t) for t, row in enumerate(x)]) for x in (q, k))
    k_all, v_all = np.concatenate([past[0, 0, 0], k]), np.concatenate([past[1, 0, 0], v])
    close(y[0], one_by_one(q[:, None], k_all[:, None], v_all[:, None], np.zeros((1, 2, 1))))
    close(present[0, 0, 0], k_all)


def test_query_key_value_in_one_tensor():
    x, bias = some(1, 3, 2, 3, 4), some(24)
    parts = x[0].transpose(2, 0, 1, 3) + bias.reshape(3, 1, 2, 4)
    y = multi_head.multi_head_attention(x, None, None, bias, num_heads=2, _outputs=1)
    close(y[0], one_by_one(*parts, np.zeros((2, 3, 1))))
    query, both = some(1, 2, 8), some(1, 3, 2, 2, 4)
    y = multi_head.multi_head_attention(query, both, num_heads=2, _outputs=1)
    close(y[0], one_by_one(query[0].reshape(2, 2, 4), both[0, :, :, 0], both[0, :, :, 1], np.zeros((2, 2, 1))))


@pytest.mark.parametrize("length", [1, 20])
@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_sparse_attention(length, dtype):
    """Compare with onnxruntime, whose kernel requires past and present in the same memory."""
    heads, groups, size, capacity = 4, 2, 16, 48
    total = 20 if length > 1 else 37
    dense = np.tril(RANDOM.integers(0, 2, (2, 3, 3)))
    dense[:, range(3), range(3)] = 1
    rows = np.concatenate([np.zeros((2, 1), int), dense.sum(2).cumsum(1)], axis=1).astype(np.int32)
    columns = np.full((2, rows[:, -1].max()), -1, np.int32)
    for layout in range(2):
        listed = np.nonzero(dense[layout])[1]
        columns[layout, : len(listed)] = listed
    past = [some(1, groups, capacity, size).astype(dtype) for _ in range(2)]
    flat = [some(1, length, n * size).astype(dtype) for n in (heads, groups, groups)]
    tables = [some(64, size // 2).astype(dtype) for _ in range(2)]
    inputs = [*flat, *past, rows, columns, np.array(total, np.int32), np.array([total], np.int32), *tables]
    attributes = {"num_heads": heads, "kv_num_heads": groups, "sparse_block_size": 16, "do_rotary": 1}
    y, key, value = sparse.sparse_attention(*inputs, **attributes)

    names = [f"x{k}" for k in range(len(inputs))]
    kinds = [onnx.helper.np_dtype_to_tensor_dtype(x.dtype) for x in inputs]
    node = onnx.helper.make_node("SparseAttention", names, ["y", "key", "value"], domain="com.microsoft", **attributes)
    declared = [
        onnx.helper.make_tensor_value_info(n, kind, x.shape) for n, kind, x in zip(names, kinds, inputs, strict=True)
    ]
    results = [onnx.helper.make_tensor_value_info(n, kinds[0], None) for n in ("y", "key", "value")]
    graph = onnx.helper.make_graph([node], "graph", declared, results)
    opsets = [onnx.helper.make_opsetid("", 17), onnx.helper.make_opsetid("com.microsoft", 1)]
    model = onnx.helper.make_model(graph, opset_imports=opsets, ir_version=8)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    binding = session.io_binding()
    values = [onnxruntime.OrtValue.ortvalue_from_numpy(x.copy()) for x in inputs]
    for name, held in zip(names, values, strict=True):
        binding.bind_ortvalue_input(name, held)
    binding.bind_output("y")
    binding.bind_ortvalue_output("key", values[3])
    binding.bind_ortvalue_output("value", values[4])
    session.run_with_iobinding(binding)
    tolerance = 1e-5 if dtype is np.float32 else 4e-3
    close(y, binding.get_outputs()[0].numpy(), tolerance)
    close(key, values[3].numpy(), tolerance)
    close(value, values[4].numpy(), tolerance)


@pytest.mark.parametrize("latent", [False, True])
@pytest.mark.parametrize("bits", [32, 8])
@pytest.mark.parametrize(
    "attributes", [{}, {"local_window_size": 3}, {"softcap": 1.5}, {"is_causal": 0}, {"do_rotary": 1}, {"skip": True}]
)
def test_paged_attention(attributes, bits, latent):
    """Compare three sequences, one token at a time."""
    attributes = {"scale": 0.3, **attributes}
    heads, groups, size, block = 4, 1 if latent else 2, 8, 4
    past, new = np.array([3, 0, 6], np.int32), np.array([2, 4, 1])
    table = np.array([[5, 1, 7], [0, 3, 9], [2, 8, 4]], np.int32)
    q, k, v = some(7, heads * size), some(7, groups * size), some(7, groups * size)
    held = [some(10, block, groups, size) for _ in range(2)]
    unit = np.float32(1 if bits == 32 else 0.011)
    if bits == 8:
        held = [np.rint(x * 90).astype(np.int8) for x in held]
    sequence = np.repeat(np.arange(3), new)
    position = np.concatenate([p + np.arange(n) for p, n in zip(past, new, strict=True)])
    slots = (table[sequence, position // block] * block + position % block).astype(np.int32)
    if attributes.pop("skip", False):
        slots[0] = -1
    cos, sin = (some(20, size // 2), some(20, size // 2)) if "do_rotary" in attributes else (None, None)
    scales = [None, None] if bits == 32 else [np.array([unit])] * 2
    layout = {"kv_cache_layout": "LATENT", "v_head_size": 6} if latent else {}
    sums = np.concatenate([[0], np.cumsum(new)]).astype(np.int32)
    y, *_ = paged.paged_attention(
        q,
        k,
        None if latent else v,
        held[0],
        None if latent else held[1],
        sums,
        past,
        table,
        cos,
        sin,
        slots,
        None,
        None,
        None,
        scales[0],
        None if latent else scales[1],
        num_heads=heads,
        kv_num_heads=groups,
        **layout,
        **attributes,
    )

    def turned(x, p):
        if cos is None:
            return x
        a, b = x[..., : size // 2], x[..., size // 2 :]
        return np.concatenate([a * cos[p] - b * sin[p], a * sin[p] + b * cos[p]], axis=-1)

    keys, values = (x.reshape(-1, groups, size) * unit for x in held)
    for token, slot in enumerate(slots):
        if slot >= 0:
            rows = turned(k[token].reshape(groups, size), position[token]), v[token].reshape(groups, size)
            keys[slot], values[slot] = (np.rint(x / unit).clip(-128, 127) * unit if bits == 8 else x for x in rows)
    values = keys[:, :, :6] if latent else values
    for token in range(7):
        last = position[token] if attributes.get("is_causal", 1) else past[sequence[token]] + new[sequence[token]] - 1
        first = max(position[token] - attributes.get("local_window_size", 99) + 1, 0)
        seen = [table[sequence[token], j // block] * block + j % block for j in range(first, last + 1)]
        for head in range(heads):
            group = head * groups // heads
            scores = keys[seen, group] @ turned(q[token].reshape(heads, size)[head], position[token]) * 0.3
            cap = attributes.get("softcap")
            scores = np.tanh(scores / cap) * cap if cap else scores
            part = softmax(scores) @ values[seen, group]
            close(y[token].reshape(heads, -1)[head], part, 1e-5 if bits == 32 else 5e-3)  # one quantization step
