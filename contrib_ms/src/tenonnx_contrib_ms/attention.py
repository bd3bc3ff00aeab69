"""Attention with input projection."""

from __future__ import annotations

from typing import Any

import tenonnx_standard as ops
from tenonnx.extend import (
    DType,
    Value,
    at_least,
    constant,
    differ,
    dims,
    floats,
    holds,
    integers,
    op,
    same_dtype,
    shapes,
    symbolic,
)
from tenonnx_contrib_ms import caches
from tenonnx_contrib_ms import scaled_dot_product as core
from tenonnx_standard.checking import dim_of


@op("Attention", domain="com.microsoft")
def attention(
    input,
    weights,
    bias=None,
    mask_index=None,
    past=None,
    attention_bias=None,
    past_sequence_length=None,
    *,
    do_rotary=0,
    mask_filter_value=-10000.0,
    num_heads: int,
    past_present_share_buffer=0,
    qkv_hidden_sizes: list[int] | None = None,
    rotary_embedding_dim=0,
    scale=0.0,
    unidirectional=0,
    _outputs=None,
):
    """Self attention of ``input`` projected by ``weights``, the concatenated weights of query, key and value.

    ``mask_index`` selects the visible keys: positive elements of a mask (batch, keys), (batch, length, keys) or (batch,
    1, maximum, maximum), the latter cropped; the end of each sequence; all ends followed by all starts; or lengths
    followed by cumulative lengths, which are ignored. ``mask_filter_value`` is added to the logits of hidden keys;
    ``unidirectional`` is causal. ``past`` and ``present`` have keys and values.
    """
    flat = ops.matmul(input, weights)
    flat = flat if bias is None else flat + bias
    query, key, value = (core.split_heads(x, num_heads) for x in core.parted(flat, qkv_hidden_sizes))
    start: Any = 0
    if past is not None:
        start = dim_of(past, 3)
        if past_present_share_buffer:
            start = ops.reshape(ops.cast(past_sequence_length, to=DType.int64), [])
    if do_rotary:
        query, key = rotated(query, key, start, rotary_embedding_dim)
    present = key, value
    if past is not None and past_present_share_buffer:
        (first, key), (second, value) = (caches.written(past[k], new, start) for k, new in enumerate((key, value)))
        present = first, second
    elif past is not None:
        present = key, value = ops.concat(past[0], key, axis=2), ops.concat(past[1], value, axis=2)
    queries, total = dim_of(query, 2), dim_of(key, 2)
    mask = mask_bias(mask_index, query, start, total, mask_filter_value)
    if unidirectional and query.shape[2] != 1:
        mask = core.causal_bias(mask, queries, start, total, query.dtype)
    y = core.scaled_dot_product_attention(query, key, value, core.added(attention_bias, mask), scale=scale)
    if _outputs == 1:
        return core.join_heads(y)
    return core.join_heads(y), ops.concat(*(ops.unsqueeze(x, [0]) for x in present), axis=0)


def rotated(query: Value, key: Value, start: Any, width: int) -> list[Value]:
    """Rotary embedding with base 10000, for positions from ``start`` on."""
    batch, heads, length, size = dims(query)
    rotated = width or size
    share = ops.cast(ops.range_(0, rotated, 2), to=DType.float32) / _as_float(rotated)
    positions = ops.cast(ops.reshape(ops.range_(0, length, 1) + start, [1, -1, 1]), to=DType.float32)
    angles = positions * ops.pow_(constant(10000.0, DType.float32), -share)
    tables = [
        ops.expand(ops.cast(function(angles), to=query.dtype), [batch, length, rotated // 2])
        for function in (ops.cos, ops.sin)
    ]
    narrow = 0 if width == size else width
    return [ops.rotary_embedding(x, *tables, num_heads=heads, rotary_embedding_dim=narrow) for x in (query, key)]


def _as_float(size: Any) -> Any:
    return ops.cast(size, to=DType.float32) if isinstance(size, Value) else float(size)


def mask_bias(mask: Value | None, query: Value, start: Any, total: Any, filter_value: float) -> Value | None:
    """Bias of the logits for a mask of any accepted shape."""
    if mask is None:
        return None
    queries = dim_of(query, 2)
    if mask.ndim == 1:
        seen = _lengths(mask, query, total)
    elif mask.ndim == 2:
        if mask.shape[1] == 1 != total:
            return None  # a constant over all keys does not change the softmax
        seen = ops.reshape(mask, [0, 1, 1, -1])
    elif mask.ndim == 3:
        seen = ops.unsqueeze(mask, [1])
    else:
        seen = mask[:, :, start : start + queries, :total]
    return core.bias_of(seen, filter_value, query.dtype)


def hold_sizes(num_heads: int, qkv_hidden_sizes: Any, hidden: Any) -> str | None:
    if qkv_hidden_sizes is not None:
        if len(qkv_hidden_sizes) != 3 or qkv_hidden_sizes[0] != qkv_hidden_sizes[1]:
            return "qkv_hidden_sizes does not have three elements, the first two equal"
        if any(size % num_heads for size in qkv_hidden_sizes):
            return "qkv_hidden_sizes are not multiples of num_heads"
        whole, what = sum(qkv_hidden_sizes), "the sum of qkv_hidden_sizes"
        return f"number of columns of weights differs from {what}" if differ(hidden, whole) else None
    return "number of columns of weights is not a multiple of 3 * num_heads" if _uneven(hidden, 3 * num_heads) else None


def _uneven(size: Any, count: int) -> bool:
    return isinstance(size, int) and size % count != 0


def hold_mask(batch: Any, numbers: Any) -> str | None:
    if isinstance(batch, int) and isinstance(numbers, int) and numbers not in (batch, 2 * batch, 3 * batch + 2):
        return "a mask of rank 1 does not have batch, 2 * batch or 3 * batch + 2 elements"
    return None


def _hold_buffer(past: Any, past_sequence_length: Any, past_present_share_buffer: int) -> str | None:
    if past_present_share_buffer and past is not None and past_sequence_length is None:
        return "past_sequence_length is missing, with past_present_share_buffer 1"
    return None


def _lengths(mask: Value, query: Value, total: Any) -> Value:
    """Mask of visible keys, from one number per sequence: ends; ends and starts; or lengths followed by others."""
    count, batch = mask.shape[0], query.shape[0]
    if count == batch:
        return core.within(mask, total)
    if count == symbolic.multiply(batch, 2):
        ends, starts = ops.split(mask, axis=0, num_outputs=2)
        return core.within(ends, total, starts)
    batch = dim_of(query, 0)
    starts = None
    if count is None or not isinstance(batch, int):
        spans = ops.equal(dim_of(mask, 0), batch * 2)
        starts = ops.where(spans, ops.concat(mask, mask, axis=0)[batch : batch * 2], 0)
    return core.within(mask[:batch], total, starts)


attention.requires(
    shapes(
        input="batch length width",
        weights="width hidden",
        bias="hidden",
        mask_index="numbers|_ keys|batch length total|batch 1 side side",
        past="2 batch num_heads capacity size",
        attention_bias="_ _ length _",
        past_sequence_length="|1",
    ),
    floats("input", "weights", "bias", "past", "attention_bias"),
    same_dtype("input", "weights", "bias", "past", "attention_bias"),
    integers("mask_index", "past_sequence_length"),
    at_least(num_heads=1),
    holds(hold_sizes),
    holds(hold_mask),
    holds(_hold_buffer),
)
