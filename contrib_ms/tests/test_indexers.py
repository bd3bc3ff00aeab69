"""Indexers (GPU only in onnxruntime) fed in chunks, compared with formulas on the entire history, token by token."""

from __future__ import annotations

import numpy as np
import pytest

import tenonnx as tx
from tenonnx_contrib_ms.indexers import sparse_attention_indexer
from tenonnx_contrib_ms.packed_indexer import packed_sparse_attention_indexer

RANDOM = np.random.default_rng(5)
RATIO, HEADS, SIZE, WIDTH, LENGTH, BUDGET, BEST = 3, 2, 8, 4, 17, 6, 2
COS, SIN = (np.float32(f(np.outer(np.arange(40), [1.0, 0.3, 0.1, 0.05]))) for f in (np.cos, np.sin))
QUERY_WEIGHT, KEY_WEIGHT = (np.float32(RANDOM.uniform(0.5, 1.5, SIZE)) for _ in range(2))
BIAS = np.float32(RANDOM.normal(size=(RATIO, 2 * SIZE)))


def some(*shape):
    return RANDOM.normal(size=shape).astype(np.float32)


def normed(x, weight):
    return x / np.sqrt((x.astype(np.float64) ** 2).mean(-1, keepdims=True) + 1e-6) * weight


def turned(x, position, trailing):
    x, cos, sin = x.copy(), COS[position], SIN[position]
    if trailing:
        a, b = x[..., SIZE - 2 * WIDTH :: 2].copy(), x[..., SIZE - 2 * WIDTH + 1 :: 2].copy()
        x[..., SIZE - 2 * WIDTH :: 2], x[..., SIZE - 2 * WIDTH + 1 :: 2] = a * cos - b * sin, a * sin + b * cos
        return x
    half = WIDTH // 2
    a, b = x[..., :half].copy(), x[..., half:WIDTH].copy()
    x[..., :half] = a * cos[:half] - b * sin[:half]
    x[..., half:WIDTH] = b * cos[half:] + a * sin[half:]
    return x


def ordered(scores):
    return sorted(range(len(scores)), key=lambda n: (-scores[n], n))


def blocks_of(query, keys, position, visible):
    """Positions that a query may attend to, among the ``visible`` ones."""
    seen = [j for j in visible if j <= position]
    whole = [seen[k : k + RATIO] for k in range(0, len(seen) - RATIO + 1, RATIO)]
    q = turned(normed(query, QUERY_WEIGHT), position, False)
    scores = []
    for block in whole:
        key = turned(normed(np.mean([keys[j] for j in block], axis=0), KEY_WEIGHT), block[0], False)
        scores.append(np.maximum(q @ key, 0).sum())
    chosen = [j for n in ordered(scores)[: BUDGET // RATIO] for j in whole[n]]
    return chosen + seen[len(whole) * RATIO :]


def compressed(keys, gates):
    result = []
    for n in range(len(keys) // RATIO):
        values, logits = [], []
        for part, first in ((0, (n - 1) * RATIO), (1, n * RATIO)):
            for slot in range(RATIO):
                if first >= 0:
                    channels = slice(part * SIZE, (part + 1) * SIZE)
                    values.append(keys[first + slot, channels])
                    logits.append(gates[first + slot, channels] + BIAS[slot, channels])
        weights = np.exp(np.array(logits, np.float64))
        pooled = (weights * values).sum(0) / weights.sum(0)
        result.append(turned(normed(pooled, KEY_WEIGHT), n * RATIO, True))
    return result


def entries_of(query, weights, entries, position):
    q = turned(normed(query, QUERY_WEIGHT), position, True)
    seen = entries[: (position + 1) // RATIO]
    return ordered([(weights * np.maximum(q @ key, 0)).sum() for key in seen])[:BEST]


def used(row):
    assert all(row[: (row >= 0).sum()] >= 0)
    return row[row >= 0].tolist()


@pytest.mark.parametrize("chunks", [[17], [4, 1, 1, 7, 4], [1] * 17])
@pytest.mark.parametrize("masked", [False, True])
def test_blocks(chunks, masked):
    queries, keys = some(LENGTH, HEADS, SIZE), some(LENGTH, SIZE)
    shown = RANDOM.integers(0, 4, LENGTH) > 0 if masked else np.ones(LENGTH, bool)
    past, start = np.zeros((1, 0, SIZE), np.float32), 0
    for count in chunks:
        part = slice(start, start + count)
        flat = np.concatenate([queries[part].reshape(count, -1), keys[part]], axis=1)[None]
        mask = shown[None, : start + count].astype(np.int64) if masked else None
        rows, past = sparse_attention_indexer(
            flat,
            None,
            QUERY_WEIGHT,
            KEY_WEIGHT,
            COS,
            SIN,
            mask,
            past,
            compress_ratio=RATIO,
            token_budget=BUDGET,
            policy_mode="qsa",
            _outputs=2,
        )
        assert rows.shape == (1, count, BUDGET + RATIO - 1)
        for t in range(count):
            expected = blocks_of(queries[start + t], keys, start + t, np.flatnonzero(shown).tolist())
            assert used(rows[0, t]) == expected
        start += count
    np.testing.assert_array_equal(past[0], keys)


@pytest.mark.parametrize("chunks", [[17], [4, 1, 1, 7, 4], [1] * 17])
@pytest.mark.parametrize("fixed", [False, True])
def test_compressed_keys(chunks, fixed):
    queries, weights = some(LENGTH, HEADS, SIZE), some(LENGTH, HEADS)
    keys, gates = some(LENGTH, 2 * SIZE), some(LENGTH, 2 * SIZE)
    past = np.zeros((1, 9 if fixed else 0, SIZE), np.float32)
    buffer, start = np.zeros((2, 1, 0, 2 * SIZE), np.float32), 0
    entries = compressed(keys, gates)
    for count in chunks:
        part = slice(start, start + count)
        held = np.array([start // RATIO], np.int32) if fixed else None
        rows, past, buffer = sparse_attention_indexer(
            queries[part].reshape(1, count, -1),
            keys[None, part],
            QUERY_WEIGHT,
            KEY_WEIGHT,
            COS,
            SIN,
            None,
            past,
            gates[None, part],
            BIAS,
            weights[None, part],
            np.arange(start, start + count)[None],
            held,
            buffer,
            compress_ratio=RATIO,
            index_topk=BEST,
            policy_mode="csa",
            _outputs=3,
        )
        for t in range(count):
            assert used(rows[0, t]) == entries_of(queries[start + t], weights[start + t], entries, start + t)
        start += count
        assert buffer.shape[2] < 2 * RATIO
    np.testing.assert_allclose(past[0, : LENGTH // RATIO], entries, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("mode", ["qsa", "csa"])
def test_packed(mode):
    """Three sequences of different lengths; one waits for more tokens, another exceeds the capacity."""
    csa, wide = mode == "csa", SIZE * (1 + (mode == "csa"))
    queries, weights, keys, gates = (some(3, LENGTH, *s) for s in ((HEADS, SIZE), (HEADS,), (wide,), (2 * SIZE,)))
    entries = [compressed(k, g) for k, g in zip(keys, gates, strict=True)] if csa else None
    room, past = 4, np.zeros(3, np.int32)
    state, buffers = np.zeros((3, room, SIZE), np.float32), [np.zeros((3, 2 * RATIO - 1, wide), np.float32)] * (1 + csa)
    lengths = np.zeros((3, 2), np.int32)
    for counts in ([5, 2, 7], [0, 1, 1], [6, 3, 3], [1, 1, 0], [1, 4, 1], [0, 0, 17 - 12]):
        sums = np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)
        at = [(b, int(past[b]) + t) for b in range(3) for t in range(counts[b])]

        def packed(x, at=at):
            return np.stack([x[place] for place in at]).reshape(len(at), -1)

        before = state.copy(), lengths.copy()
        more = [packed(gates), BIAS, packed(weights), np.array([p for _, p in at])] if csa else [None] * 4
        capture = (None, None) if csa else (np.array(counts, np.int32), np.array([1], np.int32))
        options = {"index_topk": BEST} if csa else {"token_budget": BUDGET, "state_update_capacity": 3}
        rows, used_counts, state, *rest = packed_sparse_attention_indexer(
            packed(queries),
            packed(keys),
            QUERY_WEIGHT,
            KEY_WEIGHT,
            COS,
            SIN,
            sums,
            past,
            *more,
            state,
            buffers[0],
            buffers[1] if csa else None,
            lengths,
            *capture,
            compress_ratio=RATIO,
            policy_mode=mode,
            state_capacity=room,
            _outputs=6 if csa else 7,
            **options,
        )
        buffers, lengths = [x for x in rest[:2] if x is not None], rest[2]
        for row, count, (b, position) in zip(rows, used_counts, at, strict=True):
            if b == 2 and sum(counts) == 5:
                continue
            assert count == len(used(row))
            if csa:
                assert used(row) == entries_of(queries[b, position], weights[b, position], entries[b], position)
            else:
                assert used(row) == blocks_of(queries[b, position], keys[b], position, list(range(LENGTH)))
        if not csa:
            for b, step in np.ndindex(3, 3):
                if step >= counts[b]:
                    assert not rest[3][b, step].any()
                elif (past[b] + step + 1) % RATIO:
                    np.testing.assert_array_equal(rest[3][b, step], keys[b, past[b] + step])
                elif b != 2 or sum(counts) != 5:
                    np.testing.assert_array_equal(rest[3][b, step], state[b, (past[b] + step) // RATIO])
        past = past + np.array(counts, np.int32)
    np.testing.assert_array_equal(state[2], before[0][2])
    np.testing.assert_array_equal(lengths[2], before[1][2])
    if csa:
        np.testing.assert_allclose(state[0], entries[0][:4], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("attributes", "said"),
    [
        ({"policy_mode": "csa"}, "index_topk is below 1"),
        ({"policy_mode": "qsa"}, "token_budget is not a multiple"),
        ({"policy_mode": "qsa", "token_budget": 4}, "token_budget is not a multiple"),
        ({"policy_mode": "qsa", "token_budget": 6, "index_topk": 1}, "given, with policy_mode qsa"),
        ({"policy_mode": "csa", "index_topk": 1}, "position_ids is missing, with policy_mode csa"),
        ({"policy_mode": "other", "token_budget": 6}, "policy_mode"),
    ],
)
def test_invalid_calls_are_rejected(attributes, said):
    flat, past = some(1, 2, (HEADS + 1) * SIZE), some(1, 0, SIZE)
    with pytest.raises(tx.TenonnxError, match=said):
        sparse_attention_indexer(
            flat, None, QUERY_WEIGHT, KEY_WEIGHT, COS, SIN, None, past, compress_ratio=RATIO, **attributes
        )
