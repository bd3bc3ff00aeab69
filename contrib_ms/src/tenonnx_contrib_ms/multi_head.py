"""Multi-head attention of projected queries, keys and values."""

from __future__ import annotations

from typing import Any, NamedTuple

import tenonnx_standard as ops
from tenonnx.extend import (
    DType,
    Value,
    differ,
    divides,
    floats,
    holds,
    integers,
    op,
    same_dtype,
    shapes,
    symbolic,
    together,
)
from tenonnx_contrib_ms import caches
from tenonnx_contrib_ms import scaled_dot_product as core
from tenonnx_contrib_ms.attention import hold_mask, mask_bias
from tenonnx_standard.checking import dim_of


@op("MultiHeadAttention", domain="com.microsoft")
def multi_head_attention(
    query,
    key=None,
    value=None,
    bias=None,
    key_padding_mask=None,
    attention_bias=None,
    past_key=None,
    past_value=None,
    past_sequence_length=None,
    cache_indirection=None,
    *,
    mask_filter_value=-10000.0,
    num_heads: int,
    scale=0.0,
    unidirectional=0,
    _outputs=None,
):
    """Attention of (batch, length, heads * size) queries, keys and values, to which ``bias`` is added.

    Alternatively, ``query`` packs all three as (batch, length, heads, 3, size); ``key`` packs keys and values, with 2
    instead of 3; or keys and values are (batch, heads, length, size) without bias. With ``past_sequence_length``, the
    past is a buffer filled up to there, and ``cache_indirection`` has the source beam of each of its elements. The mask
    is as in Attention. The fourth output is the logits.
    """
    query, *new = _heads(query, key, value, bias, num_heads)
    key, value, past, present = _Cache(past_key, past_value, past_sequence_length, cache_indirection).joined(*new)
    mask = mask_bias(key_padding_mask, query, past, dim_of(key, 2), mask_filter_value)
    if unidirectional and not query.shape[2] == new[0].shape[2] == 1:
        mask = core.causal_bias(mask, dim_of(query, 2), past, dim_of(key, 2), query.dtype)
    found = _attended(query, key, value, core.added(attention_bias, mask), scale, scores=_outputs in (None, 4))
    return (found[0], *present, *found[1:])[:_outputs]


@op("DecoderMaskedMultiHeadAttention", domain="com.microsoft")
def decoder_masked_multi_head_attention(
    query,
    key=None,
    value=None,
    mask_index=None,
    attention_bias=None,
    past_key=None,
    past_value=None,
    past_sequence_length=None,
    beam_width=None,
    cache_indirection=None,
    bias=None,
    *,
    mask_filter_value=-10000.0,
    num_heads: int,
    output_qk=0,
    past_present_share_buffer=0,
    scale=0.0,
    _outputs=None,
):
    """MultiHeadAttention of a single query, for ``beam_width`` beams per sequence.

    ``past_sequence_length`` is used only with ``past_present_share_buffer``; the fourth output requires ``output_qk``.
    ``query`` may pack all three projections as (batch, 1, 3 * hidden).
    """
    if key is None:
        query, key, value = core.parted(query, None)
    length = past_sequence_length if past_present_share_buffer else None
    query, *new = _heads(query, key, value, bias, num_heads)
    key, value, past, present = _Cache(past_key, past_value, length, cache_indirection).joined(*new)
    mask = mask_bias(mask_index, query, past, dim_of(key, 2), mask_filter_value)
    wanted = 3 + bool(output_qk) if _outputs is None else _outputs
    found = _attended(query, key, value, core.added(attention_bias, mask), scale, scores=wanted == 4)
    return (found[0], *present, *found[1:])[:wanted]


def _heads(query: Value, key: Value | None, value: Value | None, bias: Value | None, count: int) -> list[Value]:
    """Query, key and value as (batch, heads, length, size), from any packing."""
    if key is None:
        query, key, value = (ops.reshape(x, [0, 0, -1]) for x in ops.split(query, axis=3, num_outputs=3))
    elif value is None:
        key, value = (ops.reshape(x, [0, 0, -1]) for x in ops.split(key, axis=3, num_outputs=2))
    if key.ndim == 4:  # from an encoder, including their bias
        query = query if bias is None else query + bias[: dim_of(query, 2)]
        return [core.split_heads(query, count), key, value]
    parts = [query, key, value]
    if bias is not None:
        biases = core.parted(bias, [dim_of(x, 2) for x in parts], axis=0)
        parts = [x + b for x, b in zip(parts, biases, strict=True)]
    return [core.split_heads(x, count) for x in parts]


class _Cache(NamedTuple):
    """Past keys and values; with ``length`` a buffer filled up to there, with source beams in ``beams``."""

    key: Value | None
    value: Value | None
    length: Value | None
    beams: Value | None

    def joined(self, key: Value, value: Value) -> tuple[Value, Value, Any, tuple[Value, Value]]:
        """All keys and values, the number of past ones, and the ``present`` outputs."""
        if self.key is None or self.value is None:
            return key, value, 0, (key, value)
        if self.length is None:
            keys, values = ops.concat(self.key, key, axis=2), ops.concat(self.value, value, axis=2)
            return keys, values, dim_of(self.key, 2), (keys, values)
        past = ops.reshape(ops.cast(self.length, to=DType.int64), [])
        places = None if self.beams is None else caches.places_of_beams(self.beams, past)
        first, keys = caches.written(self.key, key, past, places)
        second, values = caches.written(self.value, value, past, places)
        return keys, values, past, (first, second)


def _attended(
    query: Value, key: Value, value: Value, bias: Value | None, scale: float, *, scores: bool
) -> tuple[Value, ...]:
    """The output with heads merged and, if requested, the logits."""
    if not scores:
        return (core.join_heads(core.scaled_dot_product_attention(query, key, value, bias, scale=scale)),)
    result = core.logits(query, key, bias, scale=scale)
    return core.join_heads(core.weighted(ops.softmax(result), value)), result


def _hold_operands(query: Any, key: Any, value: Any, bias: Any) -> str | None:
    ranks = tuple(None if x is None else x.rank for x in (query, key, value))
    known = all(x is None or x.rank is not None for x in (query, key, value))
    if known and ranks not in ((3, 3, 3), (3, 4, 4), (3, 5, None), (5, None, None)):
        return "query, key and value are neither of rank 3 nor packed in a tensor of rank 5"
    return None


def _hold_buffer(past_key: Any, past_sequence_length: Any, cache_indirection: Any) -> str | None:
    if past_sequence_length is not None and past_key is None:
        return "past_sequence_length is given without past_key and past_value"
    if cache_indirection is not None and past_sequence_length is None:
        return "cache_indirection is given without past_sequence_length"
    return None


def _hold_columns(columns: Any, keys: Any, capacity: Any, past_key: Any, past_sequence_length: Any) -> str | None:
    total = keys if past_key is None else capacity if past_sequence_length is not None else symbolic.add(capacity, keys)
    return "a mask of rank 2 does not have one column for each key" if differ(columns, total) else None


def _hold_one_query(
    length: Any, past_key: Any, past_sequence_length: Any, past_present_share_buffer: int
) -> str | None:
    if differ(length, 1):
        return "sequence length of query is not 1"
    if past_present_share_buffer and past_key is not None and past_sequence_length is None:
        return "past_sequence_length is missing, with past_present_share_buffer 1"
    return None


_PAST = {
    "past_key": "batch num_heads capacity size",
    "past_value": "batch num_heads capacity value_size",
    "past_sequence_length": "|1",
    "attention_bias": "_ _ length _",
    "cache_indirection": "_ beams capacity",
}
_NUMBERS = "query", "key", "value", "bias", "attention_bias", "past_key", "past_value"

multi_head_attention.requires(
    shapes(
        query="batch length hidden|batch length num_heads 3 size",
        key="batch keys hidden|batch num_heads keys size|batch keys num_heads 2 size",
        value="batch keys value_hidden|batch num_heads keys value_size",
        bias="_",
        key_padding_mask="numbers|batch columns|batch length _",
        **_PAST,
    ),
    floats(*_NUMBERS),
    same_dtype(*_NUMBERS),
    integers("key_padding_mask", "past_sequence_length", "cache_indirection"),
    together("past_key", "past_value"),
    divides("num_heads", "hidden"),
    divides("num_heads", "value_hidden"),
    holds(_hold_operands),
    holds(_hold_buffer),
    holds(_hold_columns),
    holds(hold_mask),
)
decoder_masked_multi_head_attention.requires(
    shapes(
        query="batch length hidden",
        key="batch length hidden|batch num_heads keys size",
        value="batch length value_hidden|batch num_heads keys value_size",
        bias="_",
        mask_index="batch _",
        beam_width="|1",
        **_PAST,
    ),
    floats(*_NUMBERS),
    same_dtype(*_NUMBERS),
    integers("mask_index", "past_sequence_length", "cache_indirection", "beam_width"),
    together("past_key", "past_value"),
    together("key", "value"),
    divides("num_heads", "hidden"),
    holds(_hold_one_query),
)
