"""Grouped-query attention."""

from __future__ import annotations

import math
from typing import Any

import tenonnx_standard as ops
from tenonnx.extend import (
    REQUIRED,
    DType,
    TensorType,
    Value,
    constant,
    divides,
    floats,
    holds,
    integers,
    one_of,
    op,
    same_dtype,
    shapes,
    together,
)
from tenonnx_contrib_ms import caches
from tenonnx_contrib_ms import scaled_dot_product as core
from tenonnx_contrib_ms.projections import split_all
from tenonnx_standard.checking import dim_of


@op("GroupQueryAttention", domain="com.microsoft")
def group_query_attention(
    query,
    key=None,
    value=None,
    past_key=None,
    past_value=None,
    seqlens_k=REQUIRED,
    total_sequence_length=REQUIRED,
    cos_cache=None,
    sin_cache=None,
    position_ids=None,
    attention_bias=None,
    head_sink=None,
    k_scale=None,
    v_scale=None,
    q_norm_weight=None,
    k_norm_weight=None,
    query_seqlens=None,
    *,
    causal=1,
    do_rotary=0,
    k_norm_epsilon: float | None = None,
    k_quant_type="NONE",
    kv_cache_bit_width=0,
    kv_num_heads: int,
    local_window_size=-1,
    num_heads: int,
    q_norm_epsilon: float | None = None,
    qk_norm_epsilon=1e-6,
    qk_output=0,
    rotary_interleaved=0,
    scale=0.0,
    sliding_window_cache=0,
    smooth_softmax=-1,
    softcap=0.0,
    v_quant_type="NONE",
):
    """Attention with ``kv_num_heads`` groups of query heads that share keys and values, which are appended to the past.

    Instance b has ``seqlens_k[b] + 1`` keys in total, the new ones last. With ``causal``, a query sees the keys up to
    its own position; ``local_window_size`` limits their number. ``head_sink`` is an additional logit per head (0 with
    ``smooth_softmax``) in the denominator of the softmax. ``qk_output`` requests the logits (1) or the probabilities
    (2) as output 4, with 0 for hidden keys. ``present`` is undefined after the keys. ``query_seqlens`` is the number
    of valid queries of each instance; other outputs are undefined.
    """
    last = ops.reshape(ops.cast(seqlens_k, to=DType.int64), [-1, 1])
    sequence = dim_of(query, 1)
    steps = ops.reshape(ops.range_(0, sequence, 1), [1, -1])
    start = None if past_key is None else ops.maximum(last + 1 - sequence, 0)
    if query_seqlens is not None:
        start = last + 1 - ops.reshape(ops.cast(query_seqlens, to=DType.int64), [-1, 1])
    rows = ops.expand(steps, [dim_of(query, 0), 1]) if start is None else start + steps
    tables = None
    if do_rotary:
        positions = rows if position_ids is None else position_ids
        if position_ids is not None and query_seqlens is None:
            positions = _positions(position_ids, steps, sequence, total_sequence_length)
        tables = ops.gather(cos_cache, positions), ops.gather(sin_cache, positions)
    q, *new = split_all(
        [query] if key is None else [query, key, value],
        [num_heads, kv_num_heads, kv_num_heads],
        None if q_norm_weight is None else (q_norm_weight, k_norm_weight),
        (q_norm_epsilon or qk_norm_epsilon, k_norm_epsilon or qk_norm_epsilon),
        tables,
        rotary_interleaved,
    )

    cache = caches.Quantization.of((k_scale, v_scale), (k_quant_type, v_quant_type), kv_num_heads, kv_cache_bit_width)
    present = stored = new = cache.quantized(new)
    keys = steps
    if start is not None and sliding_window_cache:
        window = caches.SlidingWindow(past_key, rows, start, last + 1, local_window_size)
        present, stored = window.extended((past_key, past_value), new)
        keys = ops.unsqueeze(window.positions, [1, 2])
        attention_bias = None if attention_bias is None else window.columns_of(attention_bias)
    elif start is not None:
        present, stored, keys = caches.extended((past_key, past_value), new, rows, total_sequence_length)

    stage = DType.float32 if q.dtype.bits < 32 else q.dtype
    k, v = cache.restored(stored, q.dtype)
    q, k, v, attention_bias, head_sink = (_to(x, stage) for x in (q, k, v, attention_bias, head_sink))
    seen = _visible_keys(keys, rows, last, causal, local_window_size)
    bias = ops.where(seen, constant(0.0, stage) if attention_bias is None else attention_bias, core.lowest(stage))
    sink = constant([0.0], stage) if head_sink is None and smooth_softmax > 0 else head_sink
    y, shown = core.attended(q, k, v, bias, sink, scale=scale, softcap=softcap, shown=qk_output)
    y = _to(core.join_heads(y), query.dtype)
    return (y, *present) if shown is None else (y, *present, _to(ops.where(seen, shown, 0.0), query.dtype))


# Older versions of onnxruntime lack the attribute causal, and batches of several sequences with a past.
group_query_attention.traits(on_request=True)


def _to(x: Any, dtype: DType) -> Any:
    return x if x is None or x.dtype is dtype else ops.cast(x, to=dtype)


def _positions(given: Value, steps: Value, sequence: Any, total: Value) -> Value:
    """Positions of the rotary embedding; without a past, only the first given one is used."""
    continues = ops.less(sequence, ops.reshape(ops.cast(total, to=DType.int64), []))
    return ops.where(continues, given, given[:1, :1] + steps)


def _visible_keys(keys: Value, rows: Value, last: Value, causal: int, window: int) -> Value:
    """Mask (batch, 1, queries, keys) of the keys visible to each query by position; padding sees the keys before it."""
    if not causal:
        return keys <= ops.unsqueeze(last, [1, 3])
    seen = keys <= ops.unsqueeze(ops.minimum(rows, last), [1, 3])
    return seen & (keys > ops.unsqueeze(rows, [1, 3]) - window) if window > 0 else seen


# ----- requirements ---------------------------------------------------------------------------------------------------

_FLOATS = (
    "query",
    "key",
    "value",
    "cos_cache",
    "sin_cache",
    "attention_bias",
    "head_sink",
    "q_norm_weight",
    "k_norm_weight",
)


def _hold_modes(
    do_rotary: int,
    cos_cache: Any,
    causal: int,
    local_window_size: int,
    sliding_window_cache: int,
    past_key: Any,
    capacity: Any,
    qk_output: int,
    query_seqlens: Any,
) -> str | None:
    if do_rotary and cos_cache is None:
        return "cos_cache and sin_cache are missing, with do_rotary 1"
    if query_seqlens is not None and (past_key is None or not causal):
        return "query_seqlens is given, without past_key and past_value or with causal 0"
    if not causal and local_window_size != -1:
        return "local_window_size is not -1, with causal 0"
    if sliding_window_cache and (local_window_size < 1 or past_key is None or qk_output):
        return "sliding_window_cache is set, without local_window_size, without past_key, or with qk_output"
    if sliding_window_cache and isinstance(capacity, int) and capacity < local_window_size:
        return "past_key has fewer than local_window_size positions, with sliding_window_cache"
    return None


def _hold_cache(
    query: Any, past_key: Any, k_scale: Any, v_scale: Any, k_quant_type: str, v_quant_type: str, kv_cache_bit_width: int
) -> str | None:
    quantized = k_quant_type != "NONE"
    if k_quant_type != v_quant_type:
        return "k_quant_type and v_quant_type differ"
    if quantized and (k_scale is None or v_scale is None):
        return "k_scale or v_scale is missing, with k_quant_type and v_quant_type other than NONE"
    if quantized and kv_cache_bit_width not in (4, 8):
        return "kv_cache_bit_width is neither 4 nor 8, for a quantized cache"
    if past_key is None or past_key.type is None or query.type is None:
        return None
    wanted = {4: DType.uint8, 8: DType.int8}[kv_cache_bit_width] if quantized else query.dtype
    return None if past_key.dtype is wanted else f"past_key and past_value do not hold {wanted}"


def _hold_lengths(seqlens_k: Any, batch: Any) -> str | None:
    sizes = seqlens_k.shape if isinstance(seqlens_k.type, TensorType) else None
    if sizes is None or not all(isinstance(size, int) for size in (*sizes, batch)) or math.prod(sizes) == batch:
        return None
    return "seqlens_k does not hold one length for each batch entry"


group_query_attention.requires(
    shapes(
        query="batch length hidden",
        key="batch length kv_hidden",
        value="batch length kv_hidden",
        past_key="batch kv_num_heads capacity size",
        past_value="batch kv_num_heads capacity size",
        total_sequence_length="|1",
        cos_cache="positions half",
        sin_cache="positions half",
        position_ids="batch length",
        attention_bias="_ _ length _",
        head_sink="num_heads",
        query_seqlens="batch",
    ),
    floats(*_FLOATS),
    same_dtype(*_FLOATS),
    same_dtype("past_key", "past_value"),
    integers("seqlens_k", "total_sequence_length", "position_ids", "query_seqlens"),
    floats("k_scale", "v_scale"),
    together("key", "value"),
    together("past_key", "past_value"),
    together("cos_cache", "sin_cache"),
    together("q_norm_weight", "k_norm_weight"),
    divides("kv_num_heads", "num_heads"),
    divides("kv_num_heads", "kv_hidden"),
    divides("num_heads", "hidden"),
    one_of(causal=(0, 1), k_quant_type=("NONE", "PER_TENSOR", "PER_CHANNEL"), qk_output=(0, 1, 2)),
    holds(_hold_lengths),
    holds(_hold_modes),
    holds(_hold_cache),
)
