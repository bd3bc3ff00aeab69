"""Sparse attention to selected keys: DynamicSparseAttention and SparsePagedAttention."""

from __future__ import annotations

from typing import Any

import tenonnx_standard as ops
from tenonnx.extend import (
    REQUIRED,
    DType,
    TypeMismatch,
    Value,
    constant,
    divides,
    dtypes,
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
from tenonnx_contrib_ms.paged import Paged, staged
from tenonnx_contrib_ms.projections import rotate_from, split_all
from tenonnx_standard.checking import dim_of


@op("DynamicSparseAttention", domain="com.microsoft")
def dynamic_sparse_attention(
    query,
    key=None,
    value=None,
    past_key=None,
    past_value=None,
    auxiliary_key=None,
    auxiliary_value=None,
    selected_indices=REQUIRED,
    selected_counts=REQUIRED,
    seqlens_k=REQUIRED,
    total_sequence_length=REQUIRED,
    cos_cache=None,
    sin_cache=None,
    position_ids=None,
    q_norm_weight=None,
    k_norm_weight=None,
    head_sink=None,
    committed_length=None,
    key_scale=None,
    value_scale=None,
    *,
    attention_mode="selected_only",
    auxiliary_kv_shared=0,
    do_rotary=0,
    is_causal=1,
    kv_num_heads: int,
    local_window_size=-1,
    num_heads: int,
    output_bf16=0,
    qk_norm_epsilon=1e-6,
    rotary_interleaved=0,
    rotary_offset=0,
    scale=0.0,
    selected_kv_source="main",
    smooth_softmax=0,
    _outputs=None,
):
    """GroupQueryAttention of queries to the keys selected for each of them.

    With ``local_plus_selected``, queries attend to the last ``local_window_size`` keys and to selected keys of an
    auxiliary cache, in one softmax.

    ``selected_indices`` (batch * length, n) are positions of keys; the first ``selected_counts`` of them are used.
    Queries without keys result in zeros. Caches may be int8, with ``key_scale`` and ``value_scale`` per channel.
    ``committed_length`` is only validated; the validation status is not computed here.
    """
    if (_outputs or 1) > 3:
        raise TypeMismatch(
            f"{dynamic_sparse_attention.title}: validation_status is what a kernel for GPUs finds, and not given here",
            do="leave out the fourth output",
        )
    flat = [query] if key is None else [query, key, value]
    norms = None if q_norm_weight is None else (q_norm_weight, k_norm_weight)
    batch, length = dim_of(query, 0), dim_of(query, 1)
    lengths = ops.reshape(ops.cast(seqlens_k, to=DType.int64), [-1, 1]) + 1
    rows = ops.maximum(lengths - length, 0) + ops.reshape(ops.range_(0, length, 1), [1, -1])
    q, k, v = split_all(
        flat, [num_heads, kv_num_heads, kv_num_heads], norms, (qk_norm_epsilon, qk_norm_epsilon), None, 0
    )
    if do_rotary:
        positions = rows if position_ids is None else position_ids
        tables = ops.gather(cos_cache, positions), ops.gather(sin_cache, positions)
        q, k = (
            rotate_from(rotary_offset, x, *tables, n, rotary_interleaved)
            for x, n in ((q, num_heads), (k, kv_num_heads))
        )
    form = "NONE" if key_scale is None else "PER_CHANNEL"
    cache = caches.Quantization.of((key_scale, value_scale), (form, form), kv_num_heads, 8)
    new = cache.quantized((k, v))
    if past_key is not None and past_key.dtype is not new[0].dtype:
        new = [ops.cast(x, to=past_key.dtype) for x in new]
    present = stored = new
    keys = ops.range_(0, dim_of(k, 2), 1)
    if past_key is not None:
        present, stored, keys = caches.extended((past_key, past_value), new, rows, total_sequence_length)
    stored = [x if x.dtype is q.dtype else ops.cast(x, to=q.dtype) for x in cache.restored(stored, q.dtype)]
    at = ops.unsqueeze(rows, [1, 3])
    visible = keys <= at
    near = visible & (keys > at - local_window_size) if attention_mode == "local_plus_selected" else None
    indices = ops.reshape(selected_indices, [batch, 1, length, -1])
    counts = ops.reshape(selected_counts, [batch, 1, length, 1])
    auxiliary = None
    if selected_kv_source == "auxiliary":
        auxiliary = auxiliary_key, auxiliary_key if auxiliary_value is None else auxiliary_value
    if head_sink is None and smooth_softmax:
        head_sink = constant([0.0], q.dtype)
    y = _attended(q, stored, auxiliary, None, visible, near, indices, counts, head_sink, scale=scale, softcap=0.0)
    y, dtype = core.join_heads(y), DType.bfloat16 if output_bf16 else query.dtype
    return y if y.dtype is dtype else ops.cast(y, to=dtype), *present


dynamic_sparse_attention.traits(on_request=True)


@op("SparsePagedAttention", domain="com.microsoft")
def sparse_paged_attention(
    query,
    key=None,
    value=None,
    key_cache=REQUIRED,
    value_cache=REQUIRED,
    cumulative_sequence_length=REQUIRED,
    past_seqlens=REQUIRED,
    block_table=REQUIRED,
    slot_mapping=None,
    selected_indices=REQUIRED,
    selected_counts=REQUIRED,
    auxiliary_key=None,
    auxiliary_value=None,
    auxiliary_lengths=None,
    cos_cache=None,
    sin_cache=None,
    head_sink=None,
    q_norm_weight=None,
    k_norm_weight=None,
    k_scale=None,
    v_scale=None,
    attention_metadata=None,
    *,
    attention_mode="selected_only",
    auxiliary_cache_layout="contiguous",
    auxiliary_kv_shared=0,
    do_rotary=0,
    is_causal=1,
    k_quant_type="NONE",
    kv_num_heads: int,
    local_window_size=-1,
    num_heads: int,
    qk_norm_epsilon=1e-6,
    rotary_interleaved=0,
    rotary_offset=0,
    scale=0.0,
    selected_kv_source="main",
    softcap=0.0,
    v_quant_type="NONE",
):
    """PagedAttention with the key selection of DynamicSparseAttention.

    The auxiliary cache is (batch, capacity, heads, size), filled up to ``auxiliary_lengths``. A key that is both
    selected and in the window counts once.
    """
    paged = Paged.of(
        query,
        key,
        value,
        key_cache,
        value_cache,
        cumulative_sequence_length,
        past_seqlens,
        block_table,
        slot_mapping,
        (num_heads, kv_num_heads, kv_num_heads),
        q_norm_weight,
        k_norm_weight,
        qk_norm_epsilon,
        (cos_cache, sin_cache) if do_rotary else None,
        rotary_offset,
        rotary_interleaved,
        k_scale,
        v_scale,
    )
    indices = paged.of_sequences(selected_indices, -1)
    counts = paged.of_sequences(ops.unsqueeze(selected_counts, [1]), 0)
    auxiliary = ends = None
    if selected_kv_source == "auxiliary":
        parts = auxiliary_key, auxiliary_key if auxiliary_value is None else auxiliary_value
        auxiliary = tuple(_for_heads(ops.transpose(x, perm=[0, 2, 1, 3]), kv_num_heads) for x in parts)
        ends = None if auxiliary_lengths is None else ops.reshape(auxiliary_lengths, [-1, 1, 1, 1])
    near = paged.visible(is_causal, local_window_size) if attention_mode == "local_plus_selected" else None
    y = _attended(
        paged.queries,
        (paged.keys, paged.values),
        auxiliary,
        ends,
        paged.visible(is_causal, -1),
        near,
        indices,
        counts,
        head_sink,
        scale=scale,
        softcap=softcap,
    )
    return paged.packed(y, query.dtype), *paged.new_caches


sparse_paged_attention.traits(on_request=True)


def _for_heads(x: Value, count: int) -> Value:
    return x if x.shape[1] == count else ops.expand(x, [1, count, 1, 1])


def _attended(
    query: Value,
    main: Any,
    auxiliary: Any,
    ends: Value | None,
    visible: Value,
    near: Value | None,
    indices: Value,
    counts: Value,
    sink: Value | None,
    *,
    scale: float,
    softcap: float,
) -> Value:
    """Attention to selected keys and to ``near`` keys of the main cache, of shape (batch, heads, length, size).

    Keys are selected from an auxiliary cache filled up to ``ends``, or from the ``visible`` keys of the main one.
    """
    chosen = _chosen(indices, counts, dim_of(main[0] if auxiliary is None else auxiliary[0], 2))
    if auxiliary is None:
        parts, seen = main, visible & chosen
        seen = seen if near is None else seen | near
    else:
        if ends is not None:
            places = ops.range_(0, dim_of(auxiliary[0], 2), 1)
            chosen = chosen & ops.less(places, ops.cast(ends, to=DType.int64))
        parts, seen = auxiliary, chosen
        if near is not None:
            parts = tuple(ops.concat(staged(m), staged(a), axis=2) for m, a in zip(main, auxiliary, strict=True))
            near = ops.expand(near, [1, 1, dim_of(indices, 2), 1])
            seen = ops.concat(near, chosen, axis=3)
    query, key, value = (staged(x) for x in (query, *parts))
    bias = core.hidden_bias(seen, query.dtype)
    sink = None if sink is None else staged(sink)
    y = core.scaled_dot_product_attention(query, key, value, bias, sink, scale=scale, softcap=softcap)
    any_seen = ops.reduce_max(ops.cast(seen, to=DType.int32), [3])
    return ops.where(ops.greater(any_seen, 0), y, constant(0.0, y.dtype))


def _chosen(indices: Value, counts: Value, total: Any) -> Value:
    """Mask of the ``total`` keys that occur in the first ``counts`` (..., 1) of ``indices`` (..., n)."""
    used = ops.less(ops.range_(0, dim_of(indices, 3), 1), ops.cast(counts, to=DType.int64)) & (indices >= 0)
    places = ops.where(used, ops.cast(indices, to=DType.int64), total)
    sizes = [dim_of(indices, axis) for axis in range(3)]
    none = ops.expand(constant(0, DType.int32), [*sizes, total + 1])
    ones = ops.cast(ops.equal(places, places), to=DType.int32)
    found = ops.scatter_elements(none, places, ones, axis=3)
    return ops.greater(found[:, :, :, :total], 0)


# ----- requirements ---------------------------------------------------------------------------------------------------


def _hold_selection(
    attention_mode: str,
    selected_kv_source: str,
    auxiliary_key: Any,
    auxiliary_value: Any,
    auxiliary_kv_shared: int,
) -> str | None:
    if (selected_kv_source == "auxiliary") != (auxiliary_key is not None):
        return "only one of auxiliary_key and selected_kv_source auxiliary is given"
    if auxiliary_key is not None and auxiliary_value is None and not auxiliary_kv_shared:
        return "auxiliary_value is missing, and auxiliary_kv_shared is 0"
    return None


def _hold_mode(attention_mode: str, selected_kv_source: str, local_window_size: int, rotary_offset: int) -> str | None:
    if (attention_mode, selected_kv_source) not in (("selected_only", "main"), ("local_plus_selected", "auxiliary")):
        return "attention_mode and selected_kv_source do not go together"
    if attention_mode == "local_plus_selected" and local_window_size < 1:
        return "local_window_size is less than 1, with attention_mode local_plus_selected"
    return None


def _hold_rotation(do_rotary: int, cos_cache: Any, rotary_offset: int) -> str | None:
    if rotary_offset < 0 or rotary_offset % 8:
        return "rotary_offset is not a multiple of 8"
    return "cos_cache and sin_cache are missing, with do_rotary 1" if do_rotary and cos_cache is None else None


def _hold_cache(key_cache: Any, k_scale: Any, k_quant_type: str, v_quant_type: str) -> str | None:
    if k_quant_type != v_quant_type or (k_quant_type == "NONE") != (k_scale is None):
        return "k_quant_type and v_quant_type differ, or do not match k_scale and v_scale"
    if key_cache.type is not None and (key_cache.dtype is DType.int8) != (k_scale is not None):
        return "k_scale and v_scale are missing for caches of int8, or given for others"
    return None


def _hold_past(query: Any, past_key: Any, key_scale: Any) -> str | None:
    if past_key is None or past_key.type is None or query.type is None:
        return None
    wanted = (DType.int8,) if key_scale is not None else (query.dtype, DType.float16)
    named = " or ".join(dict.fromkeys(map(str, wanted)))
    return None if past_key.dtype in wanted else f"past_key and past_value do not hold {named}"


_FLOATS = (
    "query",
    "key",
    "value",
    "auxiliary_key",
    "auxiliary_value",
    "cos_cache",
    "sin_cache",
    "head_sink",
    "q_norm_weight",
    "k_norm_weight",
)
_PAST = "past_key", "past_value"
_MODES = {"attention_mode": ("selected_only", "local_plus_selected"), "selected_kv_source": ("main", "auxiliary")}
_TABLES = {
    "cos_cache": "positions half",
    "sin_cache": "positions half",
    "q_norm_weight": "size",
    "k_norm_weight": "size",
    "head_sink": "num_heads",
}
_COMMON = (
    integers("selected_indices", "selected_counts"),
    together("key", "value"),
    together("cos_cache", "sin_cache"),
    together("q_norm_weight", "k_norm_weight"),
    divides("kv_num_heads", "num_heads"),
    one_of(**_MODES),
    holds(_hold_selection),
    holds(_hold_rotation),
)

dynamic_sparse_attention.requires(
    shapes(
        query="batch length hidden",
        key="batch length kv_hidden",
        value="batch length kv_hidden",
        past_key="batch kv_num_heads capacity size",
        past_value="batch kv_num_heads capacity size",
        auxiliary_key="batch kv_num_heads auxiliary size",
        auxiliary_value="batch kv_num_heads auxiliary size",
        selected_indices="queries _",
        selected_counts="queries",
        seqlens_k="batch",
        total_sequence_length="|1",
        position_ids="batch length",
        **_TABLES,
    ),
    floats(*_FLOATS),
    same_dtype(*_FLOATS),
    same_dtype(*_PAST),
    dtypes(position_ids="int64", key_scale="float32", value_scale="float32"),
    integers("committed_length"),
    together("key_scale", "value_scale"),
    holds(lambda query, past_key, key_scale: _hold_past(query, past_key, key_scale)),
    integers("seqlens_k", "total_sequence_length"),
    together("past_key", "past_value"),
    one_of(is_causal=(1,)),
    holds(_hold_mode),
    *_COMMON,
)
sparse_paged_attention.requires(
    shapes(
        query="tokens hidden",
        key="tokens kv_hidden",
        value="tokens kv_hidden",
        key_cache="blocks block kv_num_heads size",
        value_cache="blocks block kv_num_heads size",
        cumulative_sequence_length="_",
        past_seqlens="batch",
        block_table="batch _",
        slot_mapping="tokens",
        selected_indices="tokens _",
        selected_counts="tokens",
        auxiliary_key="batch auxiliary _ size",
        auxiliary_value="batch auxiliary _ size",
        auxiliary_lengths="batch",
        k_scale="1|kv_num_heads 1 size",
        v_scale="1|kv_num_heads 1 size",
        **_TABLES,
    ),
    floats(*_FLOATS, "k_scale", "v_scale"),
    same_dtype(*_FLOATS),
    same_dtype("key_cache", "value_cache"),
    dtypes(key_cache="float16 float32 bfloat16 float64 int8"),
    integers("cumulative_sequence_length", "past_seqlens", "block_table", "slot_mapping", "auxiliary_lengths"),
    one_of(auxiliary_cache_layout=("contiguous",), k_quant_type=("NONE", "PER_TENSOR", "PER_CHANNEL")),
    holds(_hold_cache),
    *_COMMON,
)
