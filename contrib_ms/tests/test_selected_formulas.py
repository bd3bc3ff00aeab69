"""Attention to selected keys, compared with numpy formulas based on the documentation."""

from __future__ import annotations

import numpy as np
import pytest

import tenonnx as tx
from tenonnx_contrib_ms.dynamic_sparse_attention import dynamic_sparse_attention, sparse_paged_attention

RANDOM = np.random.default_rng(11)
HEADS, GROUPS, SIZE, WINDOW = 4, 2, 8, 3


def some(*shape):
    return RANDOM.uniform(-1, 1, shape).astype(np.float32)


def one_query(query, keys, values, sink, scale=SIZE**-0.5, cap=0.0):
    """Output of one query, of shape (heads, size), from keys of shape (keys, groups, size)."""
    y = np.zeros((HEADS, SIZE))
    for head in range(HEADS):
        group = head * GROUPS // HEADS
        scores = [float(query[head] @ key[group]) * scale for key in keys]
        scores = [np.tanh(s / cap) * cap if cap else s for s in scores]
        weights = np.exp(scores)
        total = weights.sum() + (0 if sink is None else np.exp(sink[head]))
        for weight, value in zip(weights, values, strict=True):
            y[head] += weight / total * value[group]
    return y.reshape(-1)


def picked(limits, most=4):
    """Rows of selected positions below each limit; the second row has none."""
    rows, counts = np.full((len(limits), most), -1, np.int32), np.zeros(len(limits), np.int32)
    for row, limit in enumerate(limits):
        counts[row] = 0 if row == 1 else min(limit, most - row % 2)
        rows[row, : counts[row]] = RANDOM.permutation(limit)[: counts[row]]
    return rows, counts


@pytest.mark.parametrize("sink", [False, True])
@pytest.mark.parametrize("auxiliary", [False, True])
def test_dynamic_sparse_attention(auxiliary, sink):
    batch, length, starts = 2, 2, [4, 2]
    q, k, v = some(batch, length, HEADS, SIZE), some(batch, length, GROUPS, SIZE), some(batch, length, GROUPS, SIZE)
    past = [some(batch, GROUPS, 6, SIZE) for _ in range(2)]
    other = some(batch, GROUPS, 5, SIZE)
    sinks = some(HEADS) if sink else None
    attributes = {"num_heads": HEADS, "kv_num_heads": GROUPS}
    limits = [5] * 4 if auxiliary else [s + t + 1 for s in starts for t in range(length)]
    rows, counts = picked(limits)
    if auxiliary:
        attributes |= {"attention_mode": "local_plus_selected", "selected_kv_source": "auxiliary"}
        attributes |= {"local_window_size": WINDOW, "auxiliary_kv_shared": 1}
    y, key, value = dynamic_sparse_attention(
        *(x.reshape(batch, length, -1) for x in (q, k, v)),
        *past,
        other if auxiliary else None,
        None,
        rows,
        counts,
        np.array([s + length - 1 for s in starts], np.int32),
        np.array([6], np.int32),
        None,
        None,
        None,
        None,
        None,
        sinks,
        **attributes,
    )
    for b, t in np.ndindex(batch, length):
        at = starts[b] + t
        held = [p[b].transpose(1, 0, 2).copy() for p in past]
        for cache, new in zip(held, (k, v), strict=True):
            cache[starts[b] : starts[b] + length] = new[b]
        chosen = rows[b * length + t, : counts[b * length + t]]
        if auxiliary:
            near = range(max(at - WINDOW + 1, 0), at + 1)
            keys, values = ([*(c[j] for j in near), *(other[b][:, j] for j in chosen)] for c in held)
        else:
            keys, values = ([c[j] for j in chosen] for c in held)
        np.testing.assert_allclose(y[b, t], one_query(q[b, t], keys, values, sinks), rtol=1e-5, atol=1e-5)
        np.testing.assert_array_equal(key[b].transpose(1, 0, 2), held[0])
        np.testing.assert_array_equal(value[b].transpose(1, 0, 2), held[1])


@pytest.mark.parametrize("mode", ["selected_only", "local_plus_selected"])
@pytest.mark.parametrize("auxiliary", [False, True])
def test_sparse_paged_attention(auxiliary, mode):
    past, new, block = [3, 0, 6], [2, 4, 1], 4
    table = np.array([[5, 1, 7], [0, 3, 9], [2, 8, 4]], np.int32)
    q, k, v = some(7, HEADS, SIZE), some(7, GROUPS, SIZE), some(7, GROUPS, SIZE)
    caches, other, sinks = [some(10, block, GROUPS, SIZE) for _ in range(2)], some(3, 5, 1, SIZE), some(HEADS)
    sequence = np.repeat(range(3), new)
    at = np.concatenate([p + np.arange(n) for p, n in zip(past, new, strict=True)])
    rows, counts = picked([5] * 7 if auxiliary else [p + 1 for p in at])
    lengths = np.array([5, 4, 5], np.int32)
    source = {"selected_kv_source": "auxiliary", "auxiliary_kv_shared": 1} if auxiliary else {}
    y, *_ = sparse_paged_attention(
        *(x.reshape(7, -1) for x in (q, k, v)),
        *caches,
        np.array([0, 2, 6, 7], np.int32),
        np.array(past, np.int32),
        table,
        None,
        rows,
        counts,
        other if auxiliary else None,
        None,
        lengths if auxiliary else None,
        None,
        None,
        sinks,
        num_heads=HEADS,
        kv_num_heads=GROUPS,
        attention_mode=mode,
        local_window_size=WINDOW,
        scale=0.4,
        softcap=1.5,
        **source,
    )
    held = [x.copy() for x in caches]
    for cache, x in zip(held, (k, v), strict=True):
        for token in range(7):
            cache[table[sequence[token], at[token] // block], at[token] % block] = x[token]
    for token in range(7):
        b = sequence[token]

        def main(cache, j, b=b):
            return cache[table[b, j // block], j % block]

        chosen = [j for j in rows[token, : counts[token]] if not auxiliary or j < lengths[b]]
        near = list(range(max(at[token] - WINDOW + 1, 0), at[token] + 1)) if mode == "local_plus_selected" else []
        if auxiliary:
            rest = [np.repeat(other[b, j], GROUPS, axis=0) for j in chosen]
        else:
            near, rest = sorted({*near, *chosen}), []
        keys, values = ([*(main(c, j) for j in near), *rest] for c in held)
        expected = one_query(q[token], keys, values, sinks, 0.4, 1.5)
        np.testing.assert_allclose(y[token], expected, rtol=1e-5, atol=1e-5)


SHARED = {"attention_mode": "local_plus_selected", "selected_kv_source": "auxiliary"}


@pytest.mark.parametrize(
    ("attributes", "said"),
    [
        (SHARED | {"local_window_size": 2}, "only one of auxiliary_key and"),
        (SHARED, "local_window_size is less than 1"),
        ({"attention_mode": "local_plus_selected"}, "attention_mode and selected_kv_source do not"),
        ({"is_causal": 0}, "unknown is_causal"),
        ({"rotary_offset": 4}, "multiple of 8"),
        ({"do_rotary": 1}, "cos_cache and sin_cache are missing"),
    ],
)
def test_invalid_calls_are_rejected(attributes, said):
    flat = some(1, 1, 2 * HEADS * SIZE)
    numbers = np.zeros((1, 1), np.int32), np.ones(1, np.int32), np.zeros(1, np.int32), np.ones(1, np.int32)
    with pytest.raises(tx.TenonnxError, match=said):
        dynamic_sparse_attention(
            flat, None, None, None, None, None, None, *numbers, num_heads=HEADS, kv_num_heads=GROUPS, **attributes
        )
