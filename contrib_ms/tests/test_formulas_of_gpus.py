"""Ops that onnxruntime 1.32 runs on GPUs only, compared with numpy formulas based on their documentation."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ml_dtypes import bfloat16
from numpy_formulas import results, wide

import tenonnx as tx
from tenonnx_contrib_ms import gates, mamba, packed_indexer, rotary, state_replay
from tenonnx_contrib_ms.experts import moe_group_router
from tenonnx_contrib_ms.grouped_query import group_query_attention
from tenonnx_testing.cases import collected, load

load()
RANDOM = np.random.default_rng(3)


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def silu(x):
    return x * sigmoid(x)


def swiglu(gate, up=None, *, activation_alpha, activation_beta, limit, round_activation=0):
    gate, up = (gate, up) if up is not None else np.split(gate, 2, axis=-1)
    if limit > 0:
        gate, up = np.minimum(gate, limit), np.clip(up, -limit, limit)
    return gate * sigmoid(activation_alpha * gate) * (up + activation_beta)


def router_gate_up(x, w, *, activation, router_size, **options):
    y = x @ w
    return y[..., :router_size], swiglu(y[..., router_size:], **options)


def low_rank_mix(
    streams,
    norm,
    down,
    up,
    inject,
    block=None,
    gate=None,
    *,
    epsilon,
    gate_div,
    gate_mul,
    num_branches,
    reduction_scale,
    silu_alpha,
):
    s = streams.reshape(*streams.shape[:-1], num_branches, -1)
    s = s if block is None else s + gate[..., None] * block[..., None, :]
    hn = s / np.sqrt((s**2).mean(-1, keepdims=True) + epsilon) * norm.reshape(num_branches, -1)
    flat = hn.reshape(streams.shape)
    g = sigmoid(silu(silu_alpha * (flat @ down)) @ up).reshape(s.shape)
    return reduction_scale * (hn * g).sum(-2), sigmoid(flat @ inject / gate_div) * gate_mul, s.reshape(streams.shape)


def norm_rotary(
    x,
    scale,
    positions,
    cosine,
    sine,
    prefill=None,
    *,
    epsilon,
    flatten_batch,
    input_start,
    input_width,
    output_fp16,
    rotary_embedding_dim,
    use_fp32_arithmetic,
):
    batch, length, heads, _ = x.shape
    x = x[..., input_start : input_start + scale.size]
    n = x / np.sqrt((x * x).mean(-1, keepdims=True) + epsilon) * scale
    y, half = n.copy(), rotary_embedding_dim // 2
    for b, t in np.ndindex(batch, length):
        p = positions[b, t] if positions.ndim == 2 else positions[0] + t
        first, second = n[b, t, :, :half], n[b, t, :, half : 2 * half]
        y[b, t, :, :half] = first * cosine[p] - second * sine[p]
        y[b, t, :, half : 2 * half] = second * cosine[p] + first * sine[p]
    return y.reshape(*([1, -1] if flatten_batch else [batch, length]), heads * scale.size), n


def delta_replay(source, capsule, destination, metadata):
    so, do, decays, keys, deltas, heads, dv, dk, groups, capacity, kept = metadata
    result, each = destination.copy(), (keys - decays) // (capacity * heads)
    for h, v, i in np.ndindex(heads, dv, dk):
        s = source[so + (h * dv + v) * dk + i]
        for t in range(kept):
            s *= capsule[decays + (t * heads + h) * each + (i if each > 1 else 0)]
            s += (
                capsule[keys + (t * groups + h * groups // heads) * dk + i] * capsule[deltas + (t * heads + h) * dv + v]
            )
        result[do + (h * dv + v) * dk + i] = s
    return result


def mamba_layer(
    p, conv, ssm, w, bias, dt_bias, a, d, norm, row, *, d_state, epsilon, head_dim, heads, n_groups, time_step_min
):
    inner, shared, slots, rows = heads * head_dim, n_groups * d_state, len(conv), len(p)
    conv_new, ssm_new = conv.copy(), ssm.copy()
    history, state, w = conv[row[0]], ssm[row[0]].copy(), w.reshape(-1, 4)
    ys, xbcs, reads, histories, states = [], [], [], [], []
    for t in range(rows):
        gate, new, step = np.split(p[t], [inner, p.shape[1] - heads])
        line = np.concatenate([history, new[:, None]], axis=1)
        history = line[:, 1:]
        xbc = silu((line * w).sum(1) + bias).astype(bfloat16).astype(np.float64)
        x, b, c = np.split(xbc, [inner, inner + shared])
        dt = np.maximum(np.log1p(np.exp(step + dt_bias)), time_step_min)
        read = np.zeros((heads, head_dim))
        for h in range(heads):
            g = slice(h * n_groups // heads * d_state, (h * n_groups // heads + 1) * d_state)
            mine = x[h * head_dim : (h + 1) * head_dim]
            state[h] = np.exp(a[h] * dt[h]) * state[h] + np.outer(b[g], dt[h] * mine)
            read[h] = d[h] * mine + c[g] @ state[h]
        gated = (read.ravel() * silu(gate)).reshape(n_groups, -1)
        gated = gated / np.sqrt((gated**2).mean(1, keepdims=True) + epsilon)
        ys.append(gated.ravel() * norm)
        xbcs.append(xbc), reads.append(read.ravel()), histories.append(history), states.append(state.copy())
    first = max(rows - slots, 0)
    for t in range(first, rows):
        conv_new[t - first], ssm_new[t - first] = histories[t], states[t]
    return np.stack(ys), conv_new, ssm_new, np.stack(xbcs), np.stack(reads)


def merged(base, counts, rows, starts=None, ends=None, more=None, more_counts=None, *, max_output_entries, policy_mode):
    result, number, status = [], [], []
    for n, row in enumerate(rows):
        listed, wrong = [], not 0 <= row < len(base)
        if not wrong:
            listed = base[row][: counts[row]].tolist()
            wrong = not 0 <= counts[row] <= base.shape[1]
        if policy_mode == "append_range":
            wrong = wrong or starts[n] < 0 or ends[n] < starts[n]
            listed += range(starts[n], ends[n])
        else:
            wrong = wrong or not 0 <= more_counts[n] <= more.shape[1]
            listed += more[n][: more_counts[n]].tolist()
        wrong = wrong or min(listed, default=0) < 0
        once = list(dict.fromkeys(listed))
        state = 1 if wrong else 2 if len(once) > max_output_entries else 0
        once = [] if state else once
        result.append(once + [-1] * (max_output_entries - len(once))), number.append(len(once)), status.append(state)
    return tuple(np.array(x) for x in (result, number, status))


FORMULAS = {
    gates.swiglu: swiglu,
    gates.router_gate_up_proj: router_gate_up,
    gates.hyper_connection_low_rank_mix: low_rank_mix,
    rotary.rms_norm_rotary: norm_rotary,
    state_replay.gated_delta_net_state_replay: delta_replay,
    mamba.mamba2_verify: mamba_layer,
    packed_indexer.packed_sparse_attention_indexer_merge: merged,
}


@pytest.mark.parametrize("case", [case for made in FORMULAS for case in collected(made)], ids=lambda case: case.title)
def test_formula(case):
    @settings(max_examples=25, deadline=None, derandomize=True, database=None)
    @given(st.data())
    def compare(data):
        drawn, result, expected = results(case, FORMULAS[case.op], data.draw)
        narrow = min((x.dtype.itemsize for x in drawn.inputs if x is not None and x.dtype.kind not in "biu"), default=8)
        for mine, theirs in zip(result, expected, strict=True):
            allowed = 8e-2 if narrow < 4 or mine.dtype.itemsize < 4 else 1e-4
            np.testing.assert_allclose(wide(mine), theirs, rtol=allowed, atol=allowed)

    compare()


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
@pytest.mark.parametrize("kept", range(5))
def test_history_of_a_convolution_after_kept_inputs(dtype, kept):
    """Bits are copied, so signed zeros and NaNs stay."""
    batch, channels, history, capacity = 2, 3, 3, 4
    source, capture, target = (RANDOM.normal(size=n).astype(dtype) for n in (1 + 18, 2 + 24, 18 + 3))
    source[4], source[5], capture[7] = np.nan, -0.0, np.nan
    width = source.itemsize
    metadata = np.array([width, 3 * width, 2 * width, batch, channels, history, capacity, kept])
    result = state_replay.conv_state_replay(source, capture, target, metadata)
    expected = target.copy()
    before, inputs = source[1:].reshape(2, 3, 3), capture[2:].reshape(2, 4, 3)
    for b, c, p in np.ndindex(batch, channels, history):
        there = before[b, c, p + kept] if p + kept < history else inputs[b, p + kept - history, c]
        expected[3 + (b * channels + c) * history + p] = there
    assert result.tobytes() == expected.tobytes()


def test_a_missing_state_gives_nan():
    drawn = [
        np.ones(shape, dtype)
        for shape, dtype in (
            ((1, 11), bfloat16),
            ((2, 6, 3), bfloat16),
            ((2, 1, 2, 2), np.float32),
            ((6, 4), bfloat16),
            (6, bfloat16),
            (1, np.float32),
            (1, np.float32),
            (1, np.float32),
            (2, np.float32),
        )
    ]
    drawn[0] = np.ones((1, 2 * 2 + 2 * 2 + 1), bfloat16)
    y, conv, ssm, *_ = mamba.mamba2_verify(
        *drawn, np.array([2], np.int32), d_state=2, head_dim=2, heads=1, n_groups=1, _outputs=5
    )
    assert np.isnan(wide(y)).all()
    assert np.isnan(wide(conv[0])).all()
    assert np.isnan(ssm[0]).all()
    np.testing.assert_array_equal(ssm[1], 1)


def test_padding_queries_do_not_affect_results():
    """Sequences with 2 and 0 of 3 queries give the same results as separate calls."""
    heads, size, capacity = {"num_heads": 4, "kv_num_heads": 2}, 8, 9
    widths = (32, 16, 16)
    parts = [RANDOM.normal(size=(2, 3, w)).astype(np.float32) for w in widths]
    past = [RANDOM.normal(size=(2, 2, capacity, size)).astype(np.float32) for _ in range(2)]
    lengths, total = np.array([5, 3], np.int32), np.array(capacity, np.int32)
    y, *present = group_query_attention(*parts, *past, lengths, total, *[None] * 9, np.array([2, 0], np.int32), **heads)
    alone, *kept = group_query_attention(
        *(x[:1, :2] for x in parts),
        *(x[:1] for x in past),
        lengths[:1],
        total,
        *[None] * 9,
        np.array([2], np.int32),
        **heads,
    )
    np.testing.assert_allclose(y[0, :2], alone[0], rtol=1e-5, atol=1e-6)
    for mine, theirs, before in zip(present, kept, past, strict=True):
        np.testing.assert_array_equal(mine[0, :, :6], theirs[0, :, :6])
        np.testing.assert_array_equal(mine[1, :, :4], before[1, :, :4])


@pytest.mark.parametrize(
    ("attributes", "said"),
    [
        ({"top_k": 5, "n_group": 4, "topk_group": 2}, "have fewer than top_k"),
        ({"top_k": 1, "n_group": 3}, "does not divide the experts"),
        ({"top_k": 1, "topk_group": 2}, "topk_group is larger than n_group"),
    ],
)
def test_invalid_routers_are_rejected(attributes, said):
    with pytest.raises(tx.TenonnxError, match=said):
        moe_group_router(np.zeros((1, 8), np.float32), np.zeros(8, np.float32), **attributes)
