"""Attention and what belongs to it."""

from __future__ import annotations

from tenonnx.extend import InvalidCall, dims
from tenonnx.extend import op as define
from tenonnx_standard.joining import concat, split
from tenonnx_standard.shapes import reshape, squeeze, transpose, unsqueeze
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
        batch, sequence, width = dims(X)
        heads = reshape(X, [batch, sequence, num_heads, width // num_heads])
    else:
        heads = transpose(X, perm=[0, 2, 1, 3])
    size = dims(heads)[3]
    turned_size = rotary_embedding_dim or size
    turned, rest = heads, None
    if rotary_embedding_dim and rotary_embedding_dim != size:
        turned, rest = heads[:, :, :, :rotary_embedding_dim], heads[:, :, :, rotary_embedding_dim:]
    cos, sin = cos_cache, sin_cache
    if position_ids is not None:
        cos, sin = gather(cos, position_ids), gather(sin, position_ids)
    cos, sin = unsqueeze(cos, [2]), unsqueeze(sin, [2])
    result = _turn(turned, cos, sin, turned_size, bool(interleaved))
    if rest is not None:
        result = concat(result, rest, axis=-1)
    if X.ndim == 3:
        return reshape(result, [batch, sequence, width])
    return transpose(result, perm=[0, 2, 1, 3])


def _turn(x, cos, sin, size, interleaved):
    """The pairs of ``x`` (batch, sequence, heads, size) turned: neighbours, or one from each half."""
    if not interleaved:
        a, b = split(x, axis=-1, num_outputs=2)
        return concat(a * cos - b * sin, a * sin + b * cos, axis=-1)
    batch, sequence, heads, _ = dims(x)
    a, b = (
        squeeze(part, [4]) for part in split(reshape(x, [batch, sequence, heads, size // 2, 2]), axis=4, num_outputs=2)
    )
    turned = concat(unsqueeze(a * cos - b * sin, [4]), unsqueeze(a * sin + b * cos, [4]), axis=4)
    return reshape(turned, [batch, sequence, heads, size])
