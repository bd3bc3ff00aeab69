"""Attention and what belongs to it."""

from __future__ import annotations

import numpy as np

from tenonnx.extend import InvalidCall
from tenonnx.extend import op as define
from tenonnx_standard.checking import dim_of
from tenonnx_standard.joining import concat, split
from tenonnx_standard.shapes import reshape, squeeze, unsqueeze
from tenonnx_standard.slicing import gather


@define("RotaryEmbedding", since=23)
def rotary_embedding(
    X, cos_cache, sin_cache, position_ids=None, *, interleaved=0, num_heads: int | None = None, rotary_embedding_dim=0
):
    """Turn pairs of features by angles that grow with the position (Su et al. 2021, arXiv:2104.09864).

    ``X`` is (batch, heads, sequence, size) or (batch, sequence, heads * size); the caches are rows by position where
    there are ``position_ids``, else (batch, sequence, size / 2).
    """
    if X.ndim == 3:
        if not num_heads:
            raise InvalidCall("RotaryEmbedding needs num_heads for an input of rank 3", given=repr(X))
        width = dim_of(X, 2)
        heads = reshape(X, [0, 0, num_heads, width // num_heads])
    else:
        heads = X
    size = dim_of(heads, 3)
    turned_size = rotary_embedding_dim or size
    turned, rest = heads, None
    if rotary_embedding_dim and rotary_embedding_dim != size:
        turned, rest = heads[:, :, :, :rotary_embedding_dim], heads[:, :, :, rotary_embedding_dim:]
    cos, sin = cos_cache, sin_cache
    if position_ids is not None:
        cos, sin = gather(cos, position_ids), gather(sin, position_ids)
    every_head = [2] if X.ndim == 3 else [1]
    cos, sin = unsqueeze(cos, every_head), unsqueeze(sin, every_head)
    result = _turn(turned, cos, sin, turned_size, bool(interleaved))
    if rest is not None:
        result = concat(result, rest, axis=-1)
    return reshape(result, [0, 0, width]) if X.ndim == 3 else result


@rotary_embedding.numpy
def _(X, cos_cache, sin_cache, position_ids, *, interleaved, num_heads, rotary_embedding_dim):
    if X.ndim == 3 and not num_heads:
        raise InvalidCall("RotaryEmbedding needs num_heads for an input of rank 3", given=f"X {list(X.shape)}")
    heads = X.reshape(*X.shape[:2], num_heads, -1) if X.ndim == 3 else X
    tables = (cos_cache, sin_cache) if position_ids is None else (cos_cache[position_ids], sin_cache[position_ids])
    cos, sin = (np.expand_dims(table, 2 if X.ndim == 3 else 1) for table in tables)
    width = rotary_embedding_dim or heads.shape[3]
    parts = (
        (slice(0, width, 2), slice(1, width, 2)) if interleaved else (slice(0, width // 2), slice(width // 2, width))
    )
    a, b = (heads[..., part] for part in parts)
    turned = np.empty_like(heads)
    np.subtract(a * cos, b * sin, out=turned[..., parts[0]])
    np.add(a * sin, b * cos, out=turned[..., parts[1]])
    turned[..., width:] = heads[..., width:]
    return turned.reshape(X.shape)


def _turn(x, cos, sin, size, interleaved):
    """The pairs of ``x`` along its last axis turned: neighbours, or one from each half."""
    if not interleaved:
        a, b = split(x, axis=-1, num_outputs=2)
        return concat(a * cos - b * sin, a * sin + b * cos, axis=-1)
    a, b = (squeeze(part, [4]) for part in split(reshape(x, [0, 0, 0, size // 2, 2]), axis=4, num_outputs=2))
    turned = concat(unsqueeze(a * cos - b * sin, [4]), unsqueeze(a * sin + b * cos, [4]), axis=4)
    return reshape(turned, [0, 0, 0, size])
