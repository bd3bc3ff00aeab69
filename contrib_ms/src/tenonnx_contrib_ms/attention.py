"""Attention with its projection."""

from __future__ import annotations

from typing import Any

import numpy as np

import tenonnx_standard as ops
from tenonnx.extend import Dim, DType, TypeMismatch, UnknownType, Value, constant, dims, op
from tenonnx.graph import symbolic
from tenonnx_contrib_ms import scaled_dot_product as core
from tenonnx_standard.checking import dim_of


@op("Attention", domain="com.microsoft")
def attention(
    input, weights, bias=None, mask_index=None, past=None, attention_bias=None, past_sequence_length=None, *,
    do_rotary=0, mask_filter_value=-10000.0, num_heads: int, past_present_share_buffer=0,
    qkv_hidden_sizes: list[int] | None = None, rotary_embedding_dim=0, scale=0.0, unidirectional=0, _outputs=None,
):  # fmt: skip
    """Self attention of ``input`` times ``weights``, which hold those of query, key and value one behind the other.

    ``mask_index`` holds what is seen: as numbers above 0 for (batch, keys), (batch, length, keys) or, of which a part is
    used, (batch, 1, maximum, maximum); as the first position behind the keys of each sequence, and behind these its
    first position; or as lengths followed by sums of lengths, which do not count. What is not seen is added
    ``mask_filter_value``; ``unidirectional`` hides what comes later. ``past`` and ``present`` hold keys and values.
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
        query, key = _turned(query, key, start, rotary_embedding_dim)
    present = key, value
    if past is not None and past_present_share_buffer:
        (first, key), (second, value) = (core.written(past[k], new, start) for k, new in enumerate((key, value)))
        present = first, second
    elif past is not None:
        present = key, value = ops.concat(past[0], key, axis=2), ops.concat(past[1], value, axis=2)
    queries, total = dim_of(query, 2), dim_of(key, 2)
    mask = mask_bias(mask_index, query, start, total, mask_filter_value)
    if unidirectional:
        mask = core.causal_bias(mask, queries, start, total, query.dtype)
    y = core.scaled_dot_product_attention(query, key, value, core.added(attention_bias, mask), scale=scale)
    if _outputs == 1:
        return core.join_heads(y)
    return core.join_heads(y), ops.concat(*(ops.unsqueeze(x, [0]) for x in present), axis=0)


def _turned(query: Value, key: Value, start: Any, width: int) -> list[Value]:
    """Rotary embedding with angles of base 10000, for the positions from ``start`` on."""
    batch, heads, length, size = dims(query)
    turned = width or size
    if not isinstance(turned, int):
        raise UnknownType("Attention: do_rotary needs a known size of heads", given=repr(query))
    positions = ops.cast(ops.reshape(ops.range_(0, length, 1) + start, [1, -1, 1]), to=DType.float32)
    angles = positions * constant(10000.0 ** (-np.arange(0, turned, 2) / turned), DType.float32)
    tables = [
        ops.expand(ops.cast(function(angles), to=query.dtype), [batch, length, turned // 2])
        for function in (ops.cos, ops.sin)
    ]
    return [
        ops.rotary_embedding(x, *tables, num_heads=heads, rotary_embedding_dim=0 if turned == size else turned)
        for x in (query, key)
    ]


def mask_bias(mask: Value | None, query: Value, start: Any, total: Any, filter_value: float) -> Value | None:
    """What a mask of any of its shapes adds to the logits."""
    if mask is None:
        return None
    batch, queries = query.shape[0], dim_of(query, 2)
    if mask.ndim == 1:
        seen = _lengths(mask, batch, total)
    elif mask.ndim == 2:
        if mask.shape[1] == 1:
            return None  # the same for all keys, which the softmax does not see
        seen = ops.reshape(mask, [0, 1, 1, -1])
    elif mask.ndim == 3:
        seen = ops.unsqueeze(mask, [1])
    else:
        seen = mask[:, :, start : start + queries, :total]
    return core.bias_of(seen, filter_value, query.dtype)


def _lengths(mask: Value, batch: Dim, total: Any) -> Value:
    """Which keys are seen by numbers for each sequence: its end; end and start; or its length, followed by others."""
    count = mask.shape[0]
    if count == batch:
        return core.within(mask, total)
    if count == symbolic.multiply(batch, 2):
        ends, starts = ops.split(mask, axis=0, num_outputs=2)
        return core.within(ends, total, starts)
    if count == symbolic.add(symbolic.multiply(batch, 3), 2):
        return core.within(mask[: (dim_of(mask, 0) - 2) // 3], total)
    if isinstance(count, int) and isinstance(batch, int):
        raise TypeMismatch(
            "a mask of one axis must have one, two or three numbers (and two) for each sequence",
            given=f"{mask!r} for a batch of {batch}",
        )
    raise UnknownType(
        "a mask of one axis needs a known length", given=f"{mask!r} for a batch of {batch}", do="give --input-shapes"
    )
