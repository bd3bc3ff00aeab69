"""Rotary position embeddings."""

from __future__ import annotations

from typing import Any

import numpy as np

import tenonnx_standard as ops
from tenonnx.extend import (
    TensorType,
    Value,
    constant,
    differ,
    dims,
    dtypes,
    floats,
    holds,
    limits,
    op,
    same_dtype,
    shapes,
)
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
        heads = heads if input.ndim == 3 else None
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
    return width // (2 * half) if isinstance(width, int) and isinstance(half, int) else None


@rotary_embedding.type
def _(input, position_ids, cos_cache, sin_cache, **_) -> TensorType:
    return input.tensor


@op("MRotaryEmbedding", domain="com.microsoft")
def m_rotary_embedding(
    input, position_ids, cos_cache, sin_cache, *,
    interleaved=0, is_packed_batching=0, mrope_layout=0, mrope_section: list[int], num_heads=0,
    rotary_embedding_dim=0, scale=1.0,
):  # fmt: skip
    """RotaryEmbedding by three positions of each element: in time, height and width (Qwen2-VL, arXiv:2409.12191).

    Of the angles, the first ``mrope_section[0]`` are those of the time, and so on; or with ``mrope_layout`` 1 every
    third one is of height or width, as long as their section reaches. What is turned is multiplied by ``scale``.
    ``is_packed_batching`` has no effect, as in onnxruntime.
    """
    tables = [_of_sections(ops.gather(x, position_ids), mrope_section, mrope_layout) for x in (cos_cache, sin_cache)]
    tables = [table if scale == 1.0 else table * scale for table in tables]
    return ops.rotary_embedding(
        input, *tables, interleaved=interleaved, num_heads=num_heads or None, rotary_embedding_dim=rotary_embedding_dim
    )


def _of_sections(table: Value, sections: list[int], layout: int) -> Value:
    """Of (3, batch, sequence, half) for each column what its stream of positions gives."""
    half = sum(sections)
    limits.check_elements([half], "the sections of a rotary embedding")
    streams = np.repeat(range(3), sections)
    if layout:
        streams = np.zeros(half, np.int64)
        for stream in (1, 2):
            streams[stream : 3 * sections[stream] : 3] = stream
    found = table[0]
    for stream in (1, 2):
        if (streams == stream).any():
            found = ops.where(constant(streams == stream), table[stream], found)
    return found


@op("GemmaRotaryEmbedding", domain="com.microsoft")
def gemma_rotary_embedding(emb, q, q_rot, k, k_rot):
    """Queries and keys turned by the angles ``emb``, where what these are turned into is there already."""
    cosine, sine = (ops.unsqueeze(ops.cast(function(emb), to=q.dtype), [1]) for function in (ops.cos, ops.sin))
    return q * cosine + q_rot * sine, k * cosine + k_rot * sine


def _hold_heads(
    input: Value, hidden: Any, size: Any, half: Any, num_heads: int, rotary_embedding_dim: int
) -> str | None:
    if input.rank == 3 and not num_heads and rotary_embedding_dim:
        return "num_heads must be given with rotary_embedding_dim for an input of three axes"
    known = isinstance(hidden, int) and isinstance(half, int) and not num_heads
    if known and (not half or hidden % (2 * half)):
        return "without num_heads the last axis must hold heads twice as long as the caches are wide"
    if isinstance(hidden, int) and num_heads:
        size = hidden // num_heads
    width = rotary_embedding_dim or size
    if isinstance(width, int) and (width % 2 or differ(width // 2, half)):
        return "the rotated size of a head must be even, and twice the last dim of the caches"
    return None


def _hold_sections(mrope_section: list[int], half: Any, num_heads: int, mrope_layout: int, input: Any) -> str | None:
    if len(mrope_section) != 3 or min(mrope_section) < 0:
        return "mrope_section must be three numbers that are not negative"
    if isinstance(half, int) and sum(mrope_section) != half:
        return "the sum of mrope_section must be the width of cos_cache"
    if input.rank == 3 and num_heads < 1:
        return "num_heads must be given for an input of three axes"
    return None if mrope_layout in (0, 1) else "mrope_layout must be 0 or 1"


rotary_embedding.requires(
    shapes(
        input="batch length hidden | batch heads length size", position_ids=" | 1 | batch length",
        cos_cache="positions half", sin_cache="positions half",
    ),
    floats("input"),
    same_dtype("input", "cos_cache", "sin_cache"),
    dtypes(position_ids="int64"),
    holds(_hold_heads),
)  # fmt: skip
m_rotary_embedding.requires(
    shapes(
        input="batch length hidden|batch heads length size", position_ids="3 batch length",
        cos_cache="positions half", sin_cache="positions half",
    ),
    floats("input", "cos_cache", "sin_cache"),
    same_dtype("input", "cos_cache", "sin_cache"),
    dtypes(position_ids="int64"),
    holds(_hold_sections),
)  # fmt: skip
gemma_rotary_embedding.requires(
    shapes(
        emb="batch length size", q="batch heads length size", q_rot="batch heads length size",
        k="batch kv_heads length size", k_rot="batch kv_heads length size",
    ),
    floats("emb", "q", "q_rot", "k", "k_rot"),
    same_dtype("q", "q_rot", "k", "k_rot"),
)  # fmt: skip
