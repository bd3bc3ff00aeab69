"""Removal of padding: packing the tokens of a batch along one axis."""

from __future__ import annotations

from typing import Any

import tenonnx_standard as ops
from tenonnx.extend import (
    REQUIRED,
    DType,
    Value,
    at_least,
    constant,
    divides,
    floats,
    holds,
    integers,
    op,
    same_dtype,
    shapes,
    together,
)
from tenonnx_contrib_ms import scaled_dot_product as core
from tenonnx_contrib_ms.attention import hold_sizes
from tenonnx_standard.checking import dim_of


@op("RemovePadding", domain="com.microsoft")
def remove_padding(input, sequence_token_count):
    """Pack the first ``sequence_token_count`` tokens of each sequence.

    ``token_offset`` has their positions, then those of the padding; ``cumulated_seq_len`` the bounds of sequences.
    """
    batch, length = dim_of(input, 0), dim_of(input, 1)
    counts = ops.cast(sequence_token_count, to=DType.int64)
    kept = ops.reshape(ops.less(ops.range_(0, length, 1), ops.unsqueeze(counts, [1])), [-1])
    places = ops.range_(0, batch * length, 1)
    tokens = ops.compress(places, kept, axis=0)
    offsets = ops.concat(tokens, ops.compress(places, ops.not_(kept), axis=0), axis=0)
    sums = ops.concat([0], ops.cumsum(counts, 0), axis=0)
    y = ops.gather(ops.reshape(input, [-1, dim_of(input, 2)]), tokens)
    found = ops.reshape(offsets, [batch, length]), sums, ops.reduce_max(counts, [0])
    return y, *(ops.cast(x, to=DType.int32) for x in found)


remove_padding.traits(on_request=True)


@op("RestorePadding", domain="com.microsoft")
def restore_padding(input, token_offset):
    """Restore the positions of tokens before RemovePadding, with zeros as padding."""
    batch, length, width = dim_of(token_offset, 0), dim_of(token_offset, 1), dim_of(input, 1)
    places = _places(token_offset, input)
    nothing = ops.expand(constant(0.0, input.dtype), [batch * length, width])
    rows = ops.scatter_nd(nothing, ops.unsqueeze(places, [1]), input)
    return ops.reshape(rows, [batch, length, width])


restore_padding.traits(on_request=True)


def _places(offset: Value, tokens: Value) -> Value:
    return ops.cast(ops.reshape(offset, [-1])[: dim_of(tokens, 0)], to=DType.int64)


@op("PackedAttention", domain="com.microsoft")
def packed_attention(
    input,
    weights,
    bias,
    token_offset,
    cumulative_sequence_length,
    attention_bias=None,
    *,
    num_heads: int,
    qkv_hidden_sizes: list[int] | None = None,
    scale=0.0,
):
    """Attention of packed tokens, with projection."""
    parts = core.parted(ops.matmul(input, weights) + bias, qkv_hidden_sizes)
    return _attend(parts, token_offset, cumulative_sequence_length, attention_bias, num_heads, scale)


packed_attention.traits(on_request=True)


@op("PackedMultiHeadAttention", domain="com.microsoft")
def packed_multi_head_attention(
    query,
    key=None,
    value=None,
    bias=None,
    token_offset=REQUIRED,
    cumulative_sequence_length=REQUIRED,
    attention_bias=None,
    *,
    mask_filter_value=-10000.0,
    num_heads: int,
    scale=0.0,
):
    """MultiHeadAttention of packed tokens; ``query`` may pack all three as (tokens, heads, 3, size)."""
    parts = [query, key, value]
    if key is None:
        parts = [ops.reshape(x, [0, -1]) for x in ops.split(query, axis=2, num_outputs=3)]
    if bias is not None:
        biases = core.parted(bias, [dim_of(x, 1) for x in parts], axis=0)
        parts = [x + b for x, b in zip(parts, biases, strict=True)]
    return _attend(parts, token_offset, cumulative_sequence_length, attention_bias, num_heads, scale)


packed_multi_head_attention.traits(on_request=True)


def _attend(parts: Any, offset: Value, sums: Value, attention_bias: Value | None, heads: int, scale: float) -> Value:
    """Attention within each sequence, computed on padded sequences."""
    query, key, value = (core.split_heads(restore_padding(x, offset), heads) for x in parts)
    ends = ops.cast(sums, to=DType.int64)
    seen = core.within(ends[1:] - ends[:-1], dim_of(key, 2))
    bias = core.added(attention_bias, core.hidden_bias(seen, query.dtype))
    y = core.join_heads(core.scaled_dot_product_attention(query, key, value, bias, scale=scale))
    return ops.gather(ops.reshape(y, [-1, dim_of(y, 2)]), _places(offset, parts[0]))


@op("GatedRelativePositionBias", domain="com.microsoft")
def gated_relative_position_bias(
    query_layer, query_bias, rel_pos, weight, bias, eco_a, token_offset=None, *, num_heads: int
):
    """A position bias scaled by gates that depend on the query (WavLM, arXiv:2110.13900)."""
    flat = query_layer + query_bias
    query = core.split_heads(flat if token_offset is None else restore_padding(flat, token_offset), num_heads)
    gates = ops.matmul(query, weight) + bias
    halves = ops.reshape(gates, [0, 0, 0, 2, dim_of(weight, 1) // 2])
    update, reset = ops.split(ops.sigmoid(ops.reduce_sum(halves, [4], keepdims=0)), axis=3, num_outputs=2)
    return (update * (reset * eco_a - 1.0) + 2.0) * rel_pos


gated_relative_position_bias.traits(on_request=True)


# ----- requirements ---------------------------------------------------------------------------------------------------


def _hold_operands(query: Any, key: Any) -> str | None:
    if query.rank is not None and query.rank != (4 if key is None else 2):
        return "query does not have two axes, or four without key and value"
    return None


def _hold_tokens(query_layer: Any, token_offset: Any) -> str | None:
    if query_layer.rank is not None and query_layer.rank != (3 if token_offset is None else 2):
        return "query_layer does not have three axes, or two with token_offset"
    return None


remove_padding.requires(
    shapes(input="batch length width", sequence_token_count="batch"),
    floats("input"),
    integers("sequence_token_count"),
)
restore_padding.requires(
    shapes(input="tokens width", token_offset="batch length"), floats("input"), integers("token_offset")
)
packed_attention.requires(
    shapes(
        input="tokens width",
        weights="width hidden",
        bias="hidden",
        token_offset="batch length",
        cumulative_sequence_length="_",
        attention_bias="_ _ length length",
    ),
    floats("input", "weights", "bias", "attention_bias"),
    same_dtype("input", "weights", "bias", "attention_bias"),
    integers("token_offset", "cumulative_sequence_length"),
    at_least(num_heads=1),
    holds(hold_sizes),
)
packed_multi_head_attention.requires(
    shapes(
        query="tokens hidden|tokens num_heads 3 size",
        key="tokens hidden",
        value="tokens value_hidden",
        bias="_",
        token_offset="batch length",
        cumulative_sequence_length="_",
        attention_bias="_ _ length length",
    ),
    floats("query", "key", "value", "bias", "attention_bias"),
    same_dtype("query", "key", "value", "bias", "attention_bias"),
    integers("token_offset", "cumulative_sequence_length"),
    together("key", "value"),
    divides("num_heads", "hidden"),
    divides("num_heads", "value_hidden"),
    holds(_hold_operands),
)
gated_relative_position_bias.requires(
    shapes(
        query_layer="batch length hidden|tokens hidden",
        query_bias="hidden",
        rel_pos="_ num_heads rows columns",
        weight="size gates",
        bias="gates",
        eco_a="1 num_heads 1 1",
        token_offset="batch length",
    ),
    floats("query_layer", "query_bias", "rel_pos", "weight", "bias", "eco_a"),
    same_dtype("query_layer", "query_bias", "rel_pos", "weight", "bias", "eco_a"),
    integers("token_offset"),
    divides("num_heads", "hidden"),
    divides(2, "gates"),
    holds(_hold_tokens),
)
