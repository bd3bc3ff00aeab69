"""Attention whose query heads share keys and values in groups."""

from __future__ import annotations

from typing import Any

import tenonnx_standard as ops
from tenonnx.extend import REQUIRED, DType, Value, constant, op
from tenonnx_contrib_ms import scaled_dot_product as core
from tenonnx_standard.checking import dim_of


@op("GroupQueryAttention", domain="com.microsoft")
def group_query_attention(
    query, key=None, value=None, past_key=None, past_value=None, seqlens_k=REQUIRED, total_sequence_length=REQUIRED,
    cos_cache=None, sin_cache=None, position_ids=None, attention_bias=None, head_sink=None, k_scale=None, v_scale=None,
    q_norm_weight=None, k_norm_weight=None, *,
    causal=1, do_rotary=0, k_quant_type="NONE", kv_cache_bit_width=0, kv_num_heads: int, local_window_size=-1,
    num_heads: int, qk_norm_epsilon=1e-6, qk_output=0, rotary_interleaved=0, scale=0.0, sliding_window_cache=0,
    smooth_softmax=-1,
    softcap=0.0, v_quant_type="NONE",
):  # fmt: skip
    """Attention whose query heads share keys and values in ``kv_num_heads`` groups; these are appended to the past.

    Instance b has ``seqlens_k[b] + 1`` keys in all, of which the new ones come last. A query sees the keys up to its own
    position (``causal``), at most ``local_window_size`` of them. ``head_sink`` is one more logit for each head, 0 with
    ``smooth_softmax``, that only takes part in the sum. ``qk_output`` asks for the logits (1) or the probabilities (2) as
    output 4; what is not seen is 0 there. What lies behind the keys in ``present`` has no meaning.
    """
    counts = [num_heads, kv_num_heads, kv_num_heads]
    flat = [query] if key is None else [query, key, value]
    norms = None if q_norm_weight is None else (q_norm_weight, k_norm_weight)
    lengths = ops.reshape(ops.cast(seqlens_k, to=DType.int64), [-1, 1]) + 1
    sequence = dim_of(query, 1)
    steps = ops.reshape(ops.range_(0, sequence, 1), [1, -1])
    start = None if past_key is None else ops.maximum(lengths - sequence, 0)
    rows = ops.expand(steps, [dim_of(query, 0), 1]) if start is None else start + steps
    tables = None
    if do_rotary:
        positions = rows if position_ids is None else _positions(position_ids, steps, sequence, total_sequence_length)
        tables = ops.gather(cos_cache, positions), ops.gather(sin_cache, positions)
    q, k, v = _heads(flat, counts, norms, qk_norm_epsilon, tables, rotary_interleaved)
    total, present = sequence, (k, v)
    if start is not None:
        length = ops.reshape(ops.cast(total_sequence_length, to=DType.int64), [1])
        total = ops.reshape(length, [])
        present = _appended((past_key, past_value), (k, v), rows, length)
        k, v = (ops.slice_(x, [0], length, [2]) for x in present)

    stage = DType.float32 if q.dtype.bits < 32 else q.dtype
    q, k, v, attention_bias, head_sink = (
        x if x is None or x.dtype is stage else ops.cast(x, to=stage) for x in (q, k, v, attention_bias, head_sink)
    )
    seen = _seen(rows, lengths, total, causal, local_window_size)
    bias = ops.where(seen, constant(0.0, stage) if attention_bias is None else attention_bias, core.lowest(stage))
    sink = constant([0.0], stage) if head_sink is None and smooth_softmax > 0 else head_sink
    if not qk_output:
        y = core.scaled_dot_product_attention(q, k, v, bias, sink, scale=scale, softcap=softcap)
        return _to(core.join_heads(y), query.dtype), *present
    logits = core.logits(q, k, bias, scale=scale, softcap=softcap)
    probabilities = ops.softmax(logits)
    if sink is not None:
        probabilities = probabilities * core.share_beside(sink, logits)
    shown = logits if qk_output == 1 else probabilities
    y = _to(core.join_heads(core.weighted(probabilities, v)), query.dtype)
    return y, *present, _to(ops.where(seen, shown, 0.0), query.dtype)


def _to(x: Value, dtype: DType) -> Value:
    return x if x.dtype is dtype else ops.cast(x, to=dtype)


def _positions(given: Value, steps: Value, sequence: Any, total: Value) -> Value:
    """Positions for the rotation, of which only the first counts where nothing is past."""
    continues = ops.less(sequence, ops.reshape(ops.cast(total, to=DType.int64), []))
    return ops.where(continues, given, given[:1, :1] + steps)


def _heads(
    flat: list[Value], counts: list[int], norms: tuple[Value, Value] | None, epsilon: float,
    tables: tuple[Value, Value] | None, interleaved: int,
) -> tuple[Value, Value, Value]:  # fmt: skip
    """Queries, keys and values as [batch, heads, sequence, size], normalised and turned; queries and keys as one."""
    packed = flat[0] if len(flat) == 1 else None
    turned = counts[0] + counts[1]
    if norms is not None:
        apart = (
            [ops.reshape(x, [0, 0, n, -1]) for x, n in zip(flat, counts, strict=True)]
            if packed is None
            else ops.split(ops.reshape(packed, [0, 0, sum(counts), -1]), counts, axis=2)
        )
        normed = [ops.rms_normalization(x, w, epsilon=epsilon) for x, w in zip(apart, norms, strict=False)]
        both, v = (
            ops.transpose(ops.concat(*normed, axis=2), perm=[0, 2, 1, 3]),
            ops.transpose(apart[2], perm=[0, 2, 1, 3]),
        )
    elif packed is not None:
        both, v = ops.split(core.split_heads(packed, sum(counts)), [turned, counts[2]], axis=1)
    else:
        both, v = core.split_heads(ops.concat(*flat[:2], axis=-1), turned), core.split_heads(flat[2], counts[2])
    if tables is not None:
        both = turn(both, *tables, turned, interleaved)
    q, k = ops.split(both, counts[:2], axis=1)
    return q, k, v


def turn(x: Value, cos: Value, sin: Value, count: int, interleaved: int) -> Value:
    """``x`` [batch, heads, sequence, size] turned by [batch, sequence, half] tables, which may be narrower."""
    size, half = x.shape[3], cos.shape[2]
    width = 2 * half if isinstance(half, int) and not (isinstance(size, int) and 2 * half == size) else 0
    return ops.rotary_embedding(x, cos, sin, interleaved=interleaved, num_heads=count, rotary_embedding_dim=width)


def _appended(past: tuple[Value, Value], new: tuple[Value, Value], rows: Value, total: Value) -> tuple[Value, Value]:
    """Caches with what is new at its rows, long enough for all keys."""
    capacity = dim_of(past[0], 2)
    behind = ops.concat([0] * 6, ops.maximum(total, capacity) - capacity, [0], axis=0)
    places = ops.expand(ops.unsqueeze(rows, [1, 3]), [1, dim_of(new[0], 1), 1, dim_of(new[0], 3)])
    longer = (ops.pad(x, behind) for x in past)
    first, second = (ops.scatter_elements(x, places, n, axis=2) for x, n in zip(longer, new, strict=True))
    return first, second


def _seen(rows: Value, lengths: Value, total: Any, causal: int, window: int) -> Value:
    """Which keys each query sees, as [batch, 1, query, key]."""
    keys = ops.range_(0, total, 1)
    if not causal:
        return ops.less(keys, ops.unsqueeze(lengths, [1, 3]))
    row = ops.unsqueeze(rows, [1, 3])
    seen = keys <= row
    return seen & (keys > row - window) if window > 0 else seen
