"""Sparse attention: block-sparse, or in a window."""

from __future__ import annotations

from typing import Any

import tenonnx_standard as ops
from tenonnx.extend import (
    REQUIRED,
    DType,
    Value,
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


@op("SparseAttention", domain="com.microsoft")
def sparse_attention(
    query,
    key=None,
    value=None,
    past_key=REQUIRED,
    past_value=REQUIRED,
    block_row_indices=REQUIRED,
    block_col_indices=REQUIRED,
    total_sequence_length=REQUIRED,
    key_total_sequence_lengths=REQUIRED,
    cos_cache=None,
    sin_cache=None,
    *,
    do_rotary=0,
    kv_num_heads: int,
    num_heads: int,
    rotary_interleaved=0,
    scale=0.0,
    sparse_block_size: int,
):
    """GroupQueryAttention in which queries see only keys of some blocks (Phi-3-small, arXiv:2404.14219).

    A CSR layout: ``block_col_indices`` has the visible key blocks of each query block, starting at
    ``block_row_indices``. Heads use the layouts in turn.
    """
    flat = [query] if key is None else [query, key, value]
    lengths = ops.reshape(ops.cast(key_total_sequence_lengths, to=DType.int64), [-1, 1])
    sequence = dim_of(query, 1)
    rows = ops.maximum(lengths - sequence, 0) + ops.reshape(ops.range_(0, sequence, 1), [1, -1])
    tables = (ops.gather(cos_cache, rows), ops.gather(sin_cache, rows)) if do_rotary else None
    q, *new = split_all(flat, [num_heads, kv_num_heads, kv_num_heads], None, (0.0, 0.0), tables, rotary_interleaved)
    present, (k, v), keys = caches.extended((past_key, past_value), new, rows, total_sequence_length)

    blocks = _blocks(block_row_indices, block_col_indices, dim_of(past_key, 2), sparse_block_size)
    of_rows = ops.gather(blocks, rows / sparse_block_size, axis=1)
    seen = ops.transpose(ops.gather(of_rows, keys / sparse_block_size, axis=3), perm=[1, 0, 2, 3])
    layouts = dim_of(blocks, 0)
    if layouts != 1:
        seen = ops.gather(seen, ops.range_(0, num_heads, 1) % layouts, axis=1)
    seen = ops.greater(seen, 0.0) & (keys <= ops.unsqueeze(ops.minimum(rows, lengths - 1), [1, 3]))
    stage = DType.float32 if q.dtype.bits < 32 else q.dtype
    q, k, v = (x if x.dtype is stage else ops.cast(x, to=stage) for x in (q, k, v))
    y = core.join_heads(core.scaled_dot_product_attention(q, k, v, core.hidden_bias(seen, stage), scale=scale))
    return y if query.dtype is stage else ops.cast(y, to=query.dtype), *present


def _blocks(starts: Value, columns: Value, capacity: Any, size: int) -> Value:
    """Counts (layouts, blocks, blocks) of each key block in the list of each query block."""
    place = ops.range_(0, dim_of(columns, 1), 1)
    first, behind = (ops.unsqueeze(ops.cast(x, to=DType.int64), [2]) for x in (starts[:, :-1], starts[:, 1:]))
    listed = (place >= first) & (place < behind)
    same = ops.equal(ops.unsqueeze(ops.cast(columns, to=DType.int64), [2]), ops.range_(0, dim_of(starts, 1) - 1, 1))
    return ops.matmul(*(ops.cast(x, to=DType.float32) for x in (listed, same)))


@op("LongformerAttention", domain="com.microsoft")
def longformer_attention(
    input, weight, bias, mask, global_weight, global_bias, global_, *, num_heads: int, window: int
):
    """Attention to ``window`` tokens on both sides and to global tokens (Longformer, arXiv:2004.05150).

    Global tokens see all tokens, with separate weights. ``mask`` is added to the logits of its key.
    """
    positions = ops.range_(0, dim_of(input, 1), 1)
    near = ops.absolute(positions - ops.unsqueeze(positions, [1])) <= window
    chosen = ops.greater(global_, 0)
    shown = ops.unsqueeze(mask, [1, 2])
    seen = ops.or_(near, ops.unsqueeze(chosen, [1, 2]))
    local = _attend(input, weight, bias, ops.where(seen, shown, core.lowest(input.dtype)), num_heads)
    everywhere = _attend(input, global_weight, global_bias, shown, num_heads)
    return ops.where(ops.unsqueeze(chosen, [2]), everywhere, local)


longformer_attention.traits(on_request=True)


def _attend(x: Value, weight: Value, bias: Value, added: Value, heads: int) -> Value:
    parts = (core.split_heads(part, heads) for part in core.parted(ops.matmul(x, weight) + bias, None))
    return core.join_heads(core.scaled_dot_product_attention(*parts, added))


# ----- requirements ---------------------------------------------------------------------------------------------------

_FLOATS = "query", "key", "value", "past_key", "past_value", "cos_cache", "sin_cache"


def _hold_rotation(do_rotary: int, cos_cache: Any) -> str | None:
    return "cos_cache and sin_cache are missing, with do_rotary 1" if do_rotary and cos_cache is None else None


sparse_attention.requires(
    shapes(
        query="batch length hidden",
        key="batch length kv_hidden",
        value="batch length kv_hidden",
        past_key="batch kv_num_heads capacity size",
        past_value="batch kv_num_heads capacity size",
        block_row_indices="layouts _",
        block_col_indices="layouts _",
        total_sequence_length="|1",
        key_total_sequence_lengths="batch",
        cos_cache="positions half",
        sin_cache="positions half",
    ),
    floats(*_FLOATS),
    same_dtype(*_FLOATS),
    integers("block_row_indices", "block_col_indices", "total_sequence_length", "key_total_sequence_lengths"),
    together("key", "value"),
    together("cos_cache", "sin_cache"),
    divides("kv_num_heads", "num_heads"),
    divides("layouts", "num_heads"),
    one_of(sparse_block_size=(16, 32, 64, 128)),
    holds(_hold_rotation),
)
longformer_attention.requires(
    shapes(
        input="batch length width",
        weight="width hidden",
        bias="hidden",
        mask="batch length",
        global_weight="width hidden",
        global_bias="hidden",
        global_="batch length",
    ),
    floats("input", "weight", "bias", "mask", "global_weight", "global_bias"),
    same_dtype("input", "weight", "bias", "mask", "global_weight", "global_bias"),
    integers("global_"),
    divides(3, "hidden"),
    divides("num_heads", "hidden"),
)
