"""Fusion patterns of attention and rotary embeddings: the rules ``pattern``."""

from __future__ import annotations

from collections.abc import Iterator

import tenonnx_standard as ops
from tenonnx.extend import DType, Value, constant
from tenonnx_contrib_ms import scaled_dot_product as core
from tenonnx_contrib_ms.grouped_query import group_query_attention
from tenonnx_contrib_ms.multi_head import multi_head_attention
from tenonnx_contrib_ms.rotary import rotary_embedding
from tenonnx_standard.patterns import Guess, attended, behind_past, common_gather, joined_heads, turned

#: onnxruntime requires head sizes that are multiples of this.
MULTIPLE = 8


@group_query_attention.pattern
def group_query_attention_pattern(y: Value) -> Iterator[Guess]:
    """Match grouped heads, merged after attention to all keys, with one mask shared by all heads.

    The past of each sequence fills its cache. With a past, onnxruntime takes a single query, or a single sequence.
    """
    found = joined_heads(y)
    if found is None:
        return
    heads, after = found
    for query, key, value, mask, scale in attended(heads):
        _, count, length, size = query.shape
        cached = behind_past(key, value) if 1 in (query.shape[0], length) else None
        new, past = ((key, value), (None, None)) if cached is None else (cached.new, cached.past)
        taken = isinstance(size, int) and size % MULTIPLE == 0 and (mask is None or mask.rank == 4)
        if not taken or count == key.shape[1] or new[0].shape[2] != length:
            continue
        lengths = [ops.shape(x, start=2, end=3) for x in (new[0], past[0]) if x is not None]
        total = ops.cast(lengths[0] if cached is None else lengths[0] + lengths[1], to=DType.int32)
        last = ops.expand(total - 1, ops.shape(query, end=1))
        attributes = {"num_heads": count, "kv_num_heads": key.shape[1], "scale": scale, "causal": int(length == 1)}
        flat = map(core.join_heads, (query, *new))
        yield Guess((*flat, *past, last, total, None, None, None, mask), attributes, after, outputs=3)


@multi_head_attention.pattern
def multi_head_attention_pattern(y: Value) -> Iterator[Guess]:
    """Match heads merged after attention; earlier splits cancel in the normal form."""
    found = joined_heads(y)
    if found is None:
        return
    heads, after = found
    for query, key, value, mask, scale in attended(heads):
        if mask is not None and mask.rank != 4:
            continue
        attributes = {"num_heads": query.shape[1], "scale": scale}
        if (cached := behind_past(key, value)) is not None:
            flat = map(core.join_heads, (query, *cached.new))  # onnxruntime drops a past unless present is used
            yield Guess((*flat, None, None, mask, *cached.past), attributes, after, outputs=3)
        yield Guess((*map(core.join_heads, (query, key, value)), None, None, mask), attributes, after)


@rotary_embedding.pattern
def rotary_embedding_pattern(y: Value) -> Iterator[Guess]:
    """Match rotations by tables and positions, or by tables common to all sequences, which start at position 0."""
    for x, cosine, sine, attributes, after in turned(y):
        if x.rank == 4 and "rotary_embedding_dim" in attributes:  # onnxruntime also requires the number of heads
            attributes["num_heads"] = x.shape[1]
        found = common_gather(cosine, sine)
        if found is not None:
            yield Guess((x, found[2], *found[:2]), attributes, after)
        if cosine.shape[0] == sine.shape[0] == 1:
            tables = (ops.squeeze(t, [0]) for t in (cosine, sine))
            yield Guess((x, constant([0], "int64"), *tables), attributes, after)
