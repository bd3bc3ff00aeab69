"""Paged attention: packed tokens, with keys and values in blocks."""

from __future__ import annotations

from typing import Any, NamedTuple

import tenonnx_standard as ops
from tenonnx.extend import (
    REQUIRED,
    DType,
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
from tenonnx_contrib_ms.projections import rotate_from
from tenonnx_standard.checking import dim_of
from tenonnx_standard.normalization import statistics_dtype


@op("PagedAttention", domain="com.microsoft")
def paged_attention(
    query,
    key=None,
    value=None,
    key_cache=REQUIRED,
    value_cache=None,
    cumulative_sequence_length=REQUIRED,
    past_seqlens=REQUIRED,
    block_table=REQUIRED,
    cos_cache=None,
    sin_cache=None,
    slot_mapping=None,
    head_sink=None,
    q_norm_weight=None,
    k_norm_weight=None,
    k_scale=None,
    v_scale=None,
    attention_metadata=None,
    *,
    do_rotary=0,
    is_causal=1,
    k_cache_dtype="",
    k_quant_type="NONE",
    kv_cache_layout="SEPARATE",
    kv_num_heads: int,
    local_window_size=-1,
    num_heads: int,
    qk_norm_epsilon=1e-6,
    rotary_interleaved=0,
    rotary_offset=0,
    scale=0.0,
    softcap=0.0,
    v_cache_dtype="",
    v_head_size=0,
    v_quant_type="NONE",
):
    """GroupQueryAttention of packed tokens, with caches of (blocks, block size, heads, size).

    ``block_table`` has the blocks of each sequence. New keys and values are written after the past ones, or to the
    slots in ``slot_mapping``; negative slots are skipped. In the layout LATENT, values are the first part of keys.
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
    keys = paged.keys
    values = keys[:, :, :, : v_head_size or dim_of(keys, 3)] if value_cache is None else paged.values
    bias = core.hidden_bias(paged.visible(is_causal, local_window_size), keys.dtype)
    sink = None if head_sink is None else staged(head_sink)
    y = core.scaled_dot_product_attention(paged.queries, keys, values, bias, sink, scale=scale, softcap=softcap)
    return paged.packed(y, query.dtype), *paged.new_caches, *([None] * (2 - len(paged.new_caches)))


paged_attention.traits(on_request=True)


def staged(x: Value) -> Value:
    """Cast to float32, unless the dtype is wider."""
    return ops.cast(x, to=DType.float32) if x.dtype.bits < 32 else x


class Paged(NamedTuple):
    """Queries, keys and values of all sequences as (batch, heads, length, size), from packed tokens and blocks.

    ``key_positions`` and ``query_positions`` count from the start of each sequence, and ``ends`` are the lengths of
    the sequences after the call.
    """

    queries: Value
    keys: Value
    values: Value | None
    new_caches: list[Value]
    sequence: Value
    row: Value
    position: Value
    key_positions: Value
    query_positions: Value
    ends: Value

    @classmethod
    def of(
        cls,
        query: Value,
        key: Value | None,
        value: Value | None,
        key_cache: Value,
        value_cache: Value | None,
        ends: Value,
        past: Value,
        table: Value,
        slots: Value | None,
        counts: tuple[int, int, int],
        q_norm: Value | None,
        k_norm: Value | None,
        epsilon: float,
        tables: tuple[Value, Value] | None,
        offset: int,
        interleaved: int,
        k_scale: Value | None,
        v_scale: Value | None,
    ) -> Paged:
        parts: Any = [query, key, value]
        if key is None:
            parts = ops.split(ops.reshape(query, [0, sum(counts), -1]), list(counts), axis=1)
        q, k, v = (None if x is None else ops.reshape(x, [0, n, -1]) for x, n in zip(parts, counts, strict=True))
        past, sums, table = (ops.cast(x, to=DType.int64) for x in (past, ends, table))
        tokens = ops.range_(0, dim_of(query, 0), 1)
        sequence = ops.reduce_sum(ops.cast(ops.unsqueeze(tokens, [1]) >= sums[1:], to=DType.int64), [1], keepdims=0)
        row = tokens - ops.gather(sums, sequence)
        position = ops.gather(past, sequence) + row
        if q_norm is not None:
            stash = {"epsilon": epsilon, "stash_type": int(statistics_dtype(q))}
            q, k = (ops.rms_normalization(x, w, **stash) for x, w in ((q, q_norm), (k, k_norm)))
        if tables is not None:
            cos, sin = (ops.unsqueeze(ops.gather(x, position), [0]) for x in tables)
            q, k = (_rotated(x, cos, sin, n, offset, interleaved) for x, n in zip((q, k), counts, strict=False))

        size = dim_of(key_cache, 1)
        if slots is None:
            slots = ops.gather_nd(table, _pairs(sequence, position / size)) * size + position % size
        else:
            slots = ops.cast(slots, to=DType.int64)
        positions = ops.range_(0, dim_of(table, 1) * size, 1)
        places = ops.gather(table, positions / size, axis=1) * size + positions % size
        written, seen = [], []
        for cache, new, given in ((key_cache, k, k_scale), (value_cache, v, v_scale)):
            if cache is not None:
                by = None if given is None else ops.reshape(given, [-1, 1] if given.ndim == 1 else [counts[1], -1])
                now = _stored(cache, new, slots, by)
                written.append(now)
                current = ops.gather(ops.reshape(now, [-1, counts[1], dim_of(cache, 3)]), places)
                current = current if by is None else ops.cast(ops.cast(current, to=DType.float32) * by, to=q.dtype)
                seen.append(staged(ops.transpose(current, perm=[0, 2, 1, 3])))

        longest = ops.reduce_max(sums[1:] - sums[:-1], [0], keepdims=0)
        rows = ops.expand(constant(0.0, q.dtype), [dim_of(past, 0), longest, counts[0], dim_of(q, 2)])
        queries = ops.transpose(ops.scatter_nd(rows, _pairs(sequence, row), q), perm=[0, 2, 1, 3])
        at = ops.reshape(past, [-1, 1, 1, 1]) + ops.reshape(ops.range_(0, longest, 1), [-1, 1])
        behind = ops.reshape(past + sums[1:] - sums[:-1], [-1, 1, 1, 1])
        return cls(
            staged(queries),
            seen[0],
            seen[1] if len(seen) > 1 else None,
            written,
            sequence,
            row,
            position,
            positions,
            at,
            behind,
        )

    def visible(self, causal: int, window: int) -> Value:
        """Mask (batch, 1, queries, keys) of the keys visible to each query."""
        visible = self.key_positions <= self.query_positions if causal else self.key_positions < self.ends
        return visible & (self.key_positions > self.query_positions - window) if window > 0 else visible

    def of_sequences(self, x: Value, filling: int) -> Value:
        """Features of packed tokens, (tokens, size), as (batch, 1, longest, size)."""
        rows = ops.expand(
            constant(filling, x.dtype), [dim_of(self.ends, 0), dim_of(self.query_positions, 2), dim_of(x, 1)]
        )
        return ops.unsqueeze(ops.scatter_nd(rows, _pairs(self.sequence, self.row), x), [1])

    def packed(self, y: Value, dtype: DType) -> Value:
        """Pack (batch, heads, longest, size) to (tokens, heads * size)."""
        y = ops.gather_nd(core.join_heads(y), _pairs(self.sequence, self.row))
        return y if y.dtype is dtype else ops.cast(y, to=dtype)


def _pairs(first: Value, second: Value) -> Value:
    return ops.concat(ops.unsqueeze(first, [1]), ops.unsqueeze(second, [1]), axis=1)


def _rotated(x: Value, cos: Value, sin: Value, count: int, offset: int, interleaved: int) -> Value:
    """(tokens, heads, size) rotated from channel ``offset`` on."""
    found = rotate_from(offset, ops.unsqueeze(ops.transpose(x, perm=[1, 0, 2]), [0]), cos, sin, count, interleaved)
    return ops.transpose(ops.squeeze(found, [0]), perm=[1, 0, 2])


def _stored(cache: Value, new: Value, slots: Value, scale: Value | None) -> Value:
    """A cache with ``new`` written to its slots; negative slots map to an extra row, which is cropped."""
    if scale is not None:
        new = caches.quantized(new, scale, 8)
    rows = ops.reshape(cache, [-1, dim_of(cache, 2), dim_of(cache, 3)])
    count = dim_of(rows, 0)
    longer = ops.concat(rows, ops.cast(ops.cast(rows[:1], to=DType.float32) * 0.0, to=cache.dtype), axis=0)
    places = ops.where(ops.less(slots, 0), count, slots)
    return ops.reshape(ops.scatter_nd(longer, ops.unsqueeze(places, [1]), new)[:count], ops.shape(cache))


# ----- requirements ---------------------------------------------------------------------------------------------------


def _hold_layout(kv_cache_layout: str, value: Any, value_cache: Any, kv_num_heads: int, key: Any) -> str | None:
    if kv_cache_layout == "SEPARATE":
        return "value_cache is missing, with kv_cache_layout SEPARATE" if value_cache is None else None
    if value is not None or value_cache is not None or kv_num_heads != 1 or key is None:
        return "key is missing, kv_num_heads is not 1, or value or value_cache is given, with kv_cache_layout LATENT"
    return None


def _hold_cache(key_cache: Any, k_scale: Any, do_rotary: int, cos_cache: Any) -> str | None:
    if do_rotary and cos_cache is None:
        return "cos_cache and sin_cache are missing, with do_rotary 1"
    if key_cache.type is not None and (key_cache.dtype is DType.int8) != (k_scale is not None):
        return "k_scale and v_scale are missing for caches of int8, or given for others"
    return None


_FLOATS = "query", "key", "value", "cos_cache", "sin_cache", "head_sink", "q_norm_weight", "k_norm_weight"
_KINDS = "float16 float32 bfloat16 float64 int8"
#: Allowed cache dtypes; packed 4-bit dtypes are undocumented except for their names.
_NAMES = "", "float16", "bfloat16", "int8"

paged_attention.requires(
    shapes(
        query="tokens hidden",
        key="tokens kv_hidden",
        value="tokens kv_hidden",
        key_cache="blocks size kv_num_heads width",
        value_cache="blocks size kv_num_heads width",
        cumulative_sequence_length="_",
        past_seqlens="batch",
        block_table="batch _",
        cos_cache="positions half",
        sin_cache="positions half",
        slot_mapping="tokens",
        head_sink="num_heads",
        q_norm_weight="width",
        k_norm_weight="width",
    ),
    floats(*_FLOATS, "k_scale", "v_scale"),
    same_dtype(*_FLOATS),
    same_dtype("key_cache", "value_cache"),
    dtypes(key_cache=_KINDS, value_cache=_KINDS),
    integers("cumulative_sequence_length", "past_seqlens", "block_table", "slot_mapping"),
    together("cos_cache", "sin_cache"),
    together("q_norm_weight", "k_norm_weight"),
    divides("kv_num_heads", "num_heads"),
    divides("num_heads", "hidden"),
    one_of(kv_cache_layout=("SEPARATE", "LATENT"), k_cache_dtype=_NAMES, v_cache_dtype=_NAMES),
    holds(_hold_layout),
    holds(_hold_cache),
)
