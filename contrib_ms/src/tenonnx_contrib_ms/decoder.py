"""Decoder attention with projection."""

from __future__ import annotations

from typing import Any

import tenonnx_standard as ops
from tenonnx.extend import (
    REQUIRED,
    DType,
    Value,
    at_least,
    divides,
    dtypes,
    floats,
    holds,
    integers,
    op,
    same_dtype,
    shapes,
    together,
)
from tenonnx_contrib_ms import caches
from tenonnx_contrib_ms import scaled_dot_product as core
from tenonnx_contrib_ms.attention import mask_bias, rotated
from tenonnx_standard.checking import dim_of


@op("DecoderAttention", domain="com.microsoft")
def decoder_attention(
    query,
    key,
    q_weight,
    kv_weight,
    bias,
    key_padding_mask=None,
    key_cache=None,
    value_cache=None,
    static_kv=REQUIRED,
    use_past=REQUIRED,
    has_layer_state=REQUIRED,
    has_key_padding_mask=REQUIRED,
    *,
    mask_filter_value=-10000.0,
    num_heads: int,
):
    """Attention of (length, batch, hidden), to itself or with ``static_kv`` to ``key``; flags are run-time inputs.

    With ``use_past`` and ``has_layer_state`` the caches precede the keys and values, or with ``static_kv`` replace
    them. ``key_padding_mask`` is true for hidden keys, and used if ``has_key_padding_mask``.
    """
    hidden = dim_of(q_weight, 1)
    static, past = _flag(static_kv), _flag(use_past) * _flag(has_layer_state)
    if key_cache is None:
        past = past * 0
    source = ops.concat(query[: dim_of(query, 0) * (1 - static)], key[: dim_of(key, 0) * static], axis=0)
    queries = _heads(ops.matmul(query, q_weight) + bias[:hidden], num_heads)
    both = ops.matmul(source, kv_weight) + bias[hidden:]
    new = [_heads(x, num_heads) for x in ops.split(both, axis=2, num_outputs=2)]
    if key_cache is not None:
        used = dim_of(new[0], 2) * (1 - past * static)
        new = [
            ops.concat(cache[:, :, : dim_of(cache, 2) * past], x[:, :, :used], axis=2)
            for cache, x in zip((key_cache, value_cache), new, strict=True)
        ]
    mask = None
    if key_padding_mask is not None:
        hide = ops.and_(ops.unsqueeze(key_padding_mask, [1, 2]), ops.reshape(has_key_padding_mask, []))
        mask = core.bias_of(ops.not_(hide), mask_filter_value, query.dtype)
    y = core.scaled_dot_product_attention(queries, *new, mask)
    return ops.transpose(core.join_heads(y), perm=[1, 0, 2]), *new


decoder_attention.traits(on_request=True)


def _flag(flag: Value) -> Value:
    return ops.cast(ops.reshape(flag, []), to=DType.int64)


def _heads(x: Value, count: int) -> Value:
    """(length, batch, hidden) as (batch, heads, length, size)."""
    return ops.transpose(ops.reshape(x, [0, 0, count, dim_of(x, 2) // count]), perm=[1, 2, 0, 3])


@op("DecoderMaskedSelfAttention", domain="com.microsoft")
def decoder_masked_self_attention(
    input,
    weights,
    bias,
    mask_index=None,
    past=REQUIRED,
    attention_bias=None,
    past_sequence_length=REQUIRED,
    beam_width=None,
    cache_indirection=None,
    *,
    do_rotary=0,
    mask_filter_value=-10000.0,
    num_heads: int,
    past_present_share_buffer=0,
    scale=0.0,
):
    """Attention of a single query with its past, for ``beam_width`` beams per sequence.

    With ``past_present_share_buffer`` the past is a buffer filled up to ``past_sequence_length``. Its keys are stored
    in 16-byte chunks: the first chunk of all positions, then the second, and so on.
    """
    flat = ops.matmul(input, weights) + bias
    query, key, value = (core.split_heads(x, num_heads) for x in core.parted(flat, None))
    keys, values = past[0], past[1]
    start: Any = dim_of(keys, 2)
    if past_present_share_buffer:
        start = ops.reshape(ops.cast(past_sequence_length, to=DType.int64), [])
    if do_rotary:
        query, key = rotated(query, key, start, 0)
    if past_present_share_buffer:
        places = None if cache_indirection is None else caches.places_of_beams(cache_indirection, start)
        first, key = caches.written(_from_chunks(keys), key, start, places)
        second, value = caches.written(values, value, start, places)
        first = _to_chunks(first)
    else:
        first = key = ops.concat(keys, key, axis=2)
        second = value = ops.concat(values, value, axis=2)
    mask = core.added(attention_bias, mask_bias(mask_index, query, start, dim_of(key, 2), mask_filter_value))
    y = core.scaled_dot_product_attention(query, key, value, mask, scale=scale)
    return core.join_heads(y), ops.concat(*(ops.unsqueeze(x, [0]) for x in (first, second)), axis=0)


decoder_masked_self_attention.traits(on_request=True)


def _chunk_length(keys: Value) -> int:
    """Number of elements in 16 bytes."""
    return 128 // keys.dtype.bits


def _from_chunks(keys: Value) -> Value:
    count, capacity, size = (dim_of(keys, axis) for axis in (1, 2, 3))
    reshaped = ops.reshape(keys, [0, 0, size // _chunk_length(keys), capacity, _chunk_length(keys)])
    return ops.reshape(ops.transpose(reshaped, perm=[0, 1, 3, 2, 4]), [0, count, capacity, size])


def _to_chunks(keys: Value) -> Value:
    count, capacity, size = (dim_of(keys, axis) for axis in (1, 2, 3))
    reshaped = ops.reshape(keys, [0, 0, 0, size // _chunk_length(keys), _chunk_length(keys)])
    return ops.reshape(ops.transpose(reshaped, perm=[0, 1, 3, 2, 4]), [0, count, capacity, size])


# ----- requirements ---------------------------------------------------------------------------------------------------


def _hold_buffer(past: Any, past_present_share_buffer: int, size: Any) -> str | None:
    if past_present_share_buffer and isinstance(size, int) and past.type is not None and size % _chunk_length(past):
        return "size of a head is not a multiple of 16 bytes, with past_present_share_buffer"
    return None


_FLAG = "|1"
decoder_attention.requires(
    shapes(
        query="length batch hidden",
        key="keys batch hidden",
        q_weight="hidden hidden",
        kv_weight="hidden both",
        bias="all",
        key_padding_mask="batch _",
        key_cache="batch num_heads past size",
        value_cache="batch num_heads past size",
        static_kv=_FLAG,
        use_past=_FLAG,
        has_layer_state=_FLAG,
        has_key_padding_mask=_FLAG,
    ),
    floats("query", "key", "q_weight", "kv_weight", "bias", "key_cache", "value_cache"),
    same_dtype("query", "key", "q_weight", "kv_weight", "bias", "key_cache", "value_cache"),
    dtypes(
        key_padding_mask="bool", static_kv="bool", use_past="bool", has_layer_state="bool", has_key_padding_mask="bool"
    ),
    together("key_cache", "value_cache"),
    divides("num_heads", "hidden"),
    divides(2, "both"),
    divides(3, "all"),
)
decoder_masked_self_attention.requires(
    at_least(num_heads=1),
    shapes(
        input="batch 1 width",
        weights="width hidden",
        bias="hidden",
        mask_index="batch _",
        past="2 batch num_heads capacity size",
        attention_bias="_ _ 1 _",
        past_sequence_length="|1",
        beam_width="|1",
        cache_indirection="_ beams capacity",
    ),
    floats("input", "weights", "bias", "past", "attention_bias"),
    same_dtype("input", "weights", "bias", "past", "attention_bias"),
    integers("mask_index", "past_sequence_length", "beam_width", "cache_indirection"),
    divides(3, "hidden"),
    holds(_hold_buffer),
)
