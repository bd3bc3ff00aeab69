"""Rotary position embeddings."""

from __future__ import annotations

from typing import Any

from tenonnx.extend import DType, TensorType, TypeMismatch, Value, dims, op
from tenonnx_standard import rotary
from tenonnx_standard.constants import range_
from tenonnx_standard.shapes import expand, reshape, shape, transpose


@op("RotaryEmbedding", domain="com.microsoft")
def rotary_embedding(
    input, position_ids, cos_cache, sin_cache, *,
    interleaved=0, is_packed_batching=0, num_heads=0, rotary_embedding_dim=0, scale=1.0,
):  # fmt: skip
    """RotaryEmbedding of ``ai.onnx`` with ``position_ids`` required and second.

    These may be one number, the position of the first element. Without ``num_heads`` a head is as long as the caches
    are wide, twice. ``scale`` and ``is_packed_batching`` have no effect, as in onnxruntime.
    """
    if position_ids.ndim < 2:
        position_ids = _counted(position_ids, *(dims(input)[axis] for axis in ((0, 2) if input.ndim == 4 else (0, 1))))
    heads = num_heads or _heads(input, cos_cache)
    if input.ndim == 4 or heads is not None:
        heads = heads if input.ndim == 3 else 0
        return rotary.rotary_embedding(
            input, cos_cache, sin_cache, position_ids,
            interleaved=interleaved, num_heads=heads, rotary_embedding_dim=rotary_embedding_dim,
        )  # fmt: skip
    apart = transpose(reshape(input, [0, 0, -1, dims(cos_cache)[1] * 2]), perm=[0, 2, 1, 3])
    turned = rotary.rotary_embedding(apart, cos_cache, sin_cache, position_ids, interleaved=interleaved)
    return reshape(transpose(turned, perm=[0, 2, 1, 3]), shape(input))


def _counted(first: Value, batch: Any, length: Any) -> Value:
    """The positions from one number on, the same in each instance."""
    return expand(reshape(first, [1, 1]) + reshape(range_(0, length, 1), [1, -1]), [batch, length])


def _heads(input: Value, cos_cache: Value) -> int | None:
    """How many heads of twice the width of the caches a 3D input has, where that is known."""
    if input.ndim == 4 or cos_cache.rank is None:
        return None
    width, half = input.shape[-1], cos_cache.shape[-1]
    if not isinstance(width, int) or not isinstance(half, int):
        return None
    if not half or width % (2 * half):
        raise TypeMismatch(
            f"{rotary_embedding.title}: the last axis must hold heads twice as long as the caches are wide",
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
        raise TypeMismatch(
            f"{rotary_embedding.title}: rotary_embedding_dim needs num_heads", given=f"{rotary_embedding_dim}"
        )
    if not num_heads:
        _heads(input, cos_cache)
    return input.tensor
