"""Rotary position embedding."""

from __future__ import annotations

from typing import Any

from tenonnx.extend import Value, differ, divides, dtypes, floats, holds, same_dtype, shapes
from tenonnx.extend import op as define
from tenonnx_standard.checking import dim_of
from tenonnx_standard.joining import concat, split
from tenonnx_standard.shapes import reshape, squeeze, unsqueeze
from tenonnx_standard.slicing import gather


@define("RotaryEmbedding", since=23)
def rotary_embedding(
    X, cos_cache, sin_cache, position_ids=None, *, interleaved=0, num_heads: int | None = None, rotary_embedding_dim=0
):
    """Rotate pairs of features by angles proportional to the position (Su et al. 2021, arXiv:2104.09864).

    ``X`` is (batch, heads, sequence, size) or (batch, sequence, heads * size). The caches have a row per position if
    ``position_ids`` are given, else they are (batch, sequence, size / 2).
    """
    hidden = dim_of(X, 2) if X.ndim == 3 else None
    heads = X if hidden is None else reshape(X, [0, 0, num_heads, hidden // num_heads])
    tables = (t if position_ids is None else gather(t, position_ids) for t in (cos_cache, sin_cache))
    cos, sin = (unsqueeze(table, [1 if hidden is None else 2]) for table in tables)
    size = dim_of(heads, 3)
    width = rotary_embedding_dim or size
    whole = not rotary_embedding_dim or rotary_embedding_dim == size
    result = _rotate(heads if whole else heads[:, :, :, :width], cos, sin, width, interleaved)
    if not whole:
        result = concat(result, heads[:, :, :, width:], axis=-1)
    return result if hidden is None else reshape(result, [0, 0, hidden])


def _hold_heads(X: Value, hidden: Any, size: Any, half: Any, num_heads: int, rotary_embedding_dim: int) -> str | None:
    if X.rank == 3 and not num_heads:
        return "num_heads is missing for an input of three axes"
    if isinstance(hidden, int) and num_heads:
        size = hidden // num_heads
    width = rotary_embedding_dim or size
    if isinstance(width, int) and isinstance(size, int) and width > size:
        return "rotary_embedding_dim is larger than a head"
    if isinstance(width, int) and (width % 2 or differ(width // 2, half)):
        return "rotated size of a head is odd, or not twice the last dim of the caches"
    return None


def _hold_rows(position_ids: Value | None, cos_cache: Value, sin_cache: Value) -> str | None:
    rank = 3 if position_ids is None else 2
    if any(cache.rank not in (None, rank) for cache in (cos_cache, sin_cache)):
        return f"caches do not have {rank} axes, {'without' if position_ids is None else 'with'} position_ids"
    return None


rotary_embedding.requires(
    shapes(X="batch length hidden | batch heads length size", position_ids="batch length"),
    shapes(cos_cache="positions half | batch length half", sin_cache="positions half | batch length half"),
    floats("X"),
    same_dtype("X", "cos_cache", "sin_cache"),
    dtypes(position_ids="int64"),
    divides("num_heads", "hidden"),
    holds(_hold_rows),
    holds(_hold_heads),
)


def _rotate(x, cos, sin, size, interleaved):
    """Rotate the pairs of ``x`` along its last axis: neighbors, or one element from each half."""
    if not interleaved:
        a, b = split(x, axis=-1, num_outputs=2)
        return concat(a * cos - b * sin, a * sin + b * cos, axis=-1)
    a, b = (squeeze(part, [4]) for part in split(reshape(x, [0, 0, 0, size // 2, 2]), axis=4, num_outputs=2))
    turned = concat(unsqueeze(a * cos - b * sin, [4]), unsqueeze(a * sin + b * cos, [4]), axis=4)
    return reshape(turned, [0, 0, 0, size])
