"""Rotary position embeddings."""

from __future__ import annotations

from typing import Any

import numpy as np

from tenonnx.extend import DType, TensorType, TypeMismatch, Value, dims, op
from tenonnx_standard import attention
from tenonnx_standard.constants import range_
from tenonnx_standard.shape import expand, reshape

Array = np.ndarray[Any, Any]


@op("RotaryEmbedding", domain="com.microsoft")
def rotary_embedding(
    input, position_ids, cos_cache, sin_cache, *,
    interleaved=0, is_packed_batching=0, num_heads=0, rotary_embedding_dim=0, scale=1.0,
):  # fmt: skip
    """RotaryEmbedding of ``ai.onnx`` with ``position_ids`` required and second.

    These may be one number, the position of the first element. Without ``num_heads`` a head is as long as the caches
    are wide, twice. ``scale`` and ``is_packed_batching`` have no effect, as in onnxruntime.
    """
    batch, length = (dims(input)[axis] for axis in ((0, 2) if input.ndim == 4 else (0, 1)))
    if position_ids.ndim < 2:
        steps = reshape(range_(0, length, 1), [1, -1])
        position_ids = expand(reshape(position_ids, [1, 1]) + steps, [batch, length])
    return attention.rotary_embedding(
        input, cos_cache, sin_cache, position_ids,
        interleaved=interleaved, num_heads=_heads(input, cos_cache, num_heads), rotary_embedding_dim=rotary_embedding_dim,
    )  # fmt: skip


def _heads(input: Value, cos_cache: Value, num_heads: int) -> int:
    """The number of heads in the last axis of a 3D ``input``; 0 for a 4D one, whose axis 1 they are."""
    if num_heads or input.ndim == 4:
        return num_heads if input.ndim == 3 else 0
    width, half = input.shape[-1], cos_cache.shape[-1]
    if not isinstance(width, int) or not isinstance(half, int) or not half or width % (2 * half):
        raise TypeMismatch(
            f"{rotary_embedding.title}: the heads must be known",
            given=f"input {input!r}, cos_cache {cos_cache!r}",
            do="write num_heads",
        )
    return width // (2 * half)


@rotary_embedding.type
def _(input, position_ids, cos_cache, sin_cache, *, rotary_embedding_dim, num_heads, **_) -> TensorType:
    if input.dtype is not cos_cache.dtype or cos_cache.dtype is not sin_cache.dtype or not input.dtype.is_float:
        given = f"{input!r}, {cos_cache!r}, {sin_cache!r}"
        raise TypeMismatch(f"{rotary_embedding.title}: input and caches must be floats of one dtype", given=given)
    if position_ids.dtype is not DType.int64 or (position_ids.rank or 1) > 2:
        raise TypeMismatch(
            f"{rotary_embedding.title}: position_ids must be int64, one or [batch, sequence]", given=repr(position_ids)
        )
    if input.rank is None:
        return input.tensor
    if input.ndim not in (3, 4):
        raise TypeMismatch(f"{rotary_embedding.title}: input must have 3 or 4 axes", given=repr(input))
    if rotary_embedding_dim and not num_heads and input.ndim == 3:
        raise TypeMismatch(f"{rotary_embedding.title}: rotary_embedding_dim needs num_heads", given=f"{rotary_embedding_dim}")
    if cos_cache.rank is not None:
        _heads(input, cos_cache, num_heads)
    return input.tensor
