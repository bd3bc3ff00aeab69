"""Rotary position embeddings."""

from __future__ import annotations

from typing import Any

import numpy as np

import tenonnx_standard as ops
from tenonnx.extend import (
    DType,
    TensorType,
    Value,
    at_least,
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
    input,
    position_ids,
    cos_cache,
    sin_cache,
    *,
    interleaved=0,
    is_packed_batching=0,
    num_heads=0,
    rotary_embedding_dim=0,
    scale=1.0,
):
    """RotaryEmbedding of ``ai.onnx`` with ``position_ids`` required and second.

    A single position is that of the first element. Without ``num_heads``, the head size is twice the width of the
    caches. ``scale`` and ``is_packed_batching`` have no effect, as in onnxruntime.
    """
    if position_ids.ndim < 2:
        position_ids = _counted(position_ids, *(dims(input)[axis] for axis in ((0, 2) if input.ndim == 4 else (0, 1))))
    heads = num_heads or _heads(input, cos_cache)
    if input.ndim == 4 or heads is not None:
        heads = heads if input.ndim == 3 else None
        return rotary.rotary_embedding(
            input,
            cos_cache,
            sin_cache,
            position_ids,
            interleaved=interleaved,
            num_heads=heads,
            rotary_embedding_dim=rotary_embedding_dim,
        )
    reshaped = transpose(reshape(input, [0, 0, -1, dims(cos_cache)[1] * 2]), perm=[0, 2, 1, 3])
    rotated = rotary.rotary_embedding(reshaped, cos_cache, sin_cache, position_ids, interleaved=interleaved)
    return reshape(transpose(rotated, perm=[0, 2, 1, 3]), shape(input))


def _counted(first: Value, batch: Any, length: Any) -> Value:
    """Consecutive positions from ``first`` on, equal for all sequences."""
    return expand(reshape(first, [1, 1]) + reshape(range_(0, length, 1), [1, -1]), [batch, length])


def _heads(input: Value, cos_cache: Value) -> int | None:
    """Number of heads in a 3D input, if known, for heads of twice the width of the caches."""
    if input.ndim == 4 or cos_cache.rank is None:
        return None
    width, half = input.shape[-1], cos_cache.shape[-1]
    return width // (2 * half) if isinstance(width, int) and isinstance(half, int) else None


@rotary_embedding.type
def rotary_embedding_type(input, position_ids, cos_cache, sin_cache, **_) -> TensorType:
    return input.tensor


@op("MRotaryEmbedding", domain="com.microsoft")
def m_rotary_embedding(
    input,
    position_ids,
    cos_cache,
    sin_cache,
    *,
    interleaved=0,
    is_packed_batching=0,
    mrope_layout=0,
    mrope_section: list[int],
    num_heads=0,
    rotary_embedding_dim=0,
    scale=1.0,
):
    """RotaryEmbedding with three positions per element: time, height and width (Qwen2-VL, arXiv:2409.12191).

    The first ``mrope_section[0]`` angles use the time, and so on; with ``mrope_layout`` 1, every third angle uses the
    height or width, up to the length of their section. Rotated elements are multiplied by ``scale``.
    ``is_packed_batching`` has no effect, as in onnxruntime.
    """
    tables = [
        _select_sections(ops.gather(x, position_ids), mrope_section, mrope_layout) for x in (cos_cache, sin_cache)
    ]
    tables = [table if scale == 1.0 else table * scale for table in tables]
    return ops.rotary_embedding(
        input, *tables, interleaved=interleaved, num_heads=num_heads or None, rotary_embedding_dim=rotary_embedding_dim
    )


def _select_sections(table: Value, sections: list[int], layout: int) -> Value:
    """For each column of (3, batch, sequence, half), the element of its position stream."""
    half = sum(sections)
    limits.check_elements([half], "the sections of a rotary embedding")
    streams = np.repeat(range(3), sections)
    if layout:
        streams = np.zeros(half, np.int64)
        for stream in (1, 2):
            streams[stream : 3 * sections[stream] : 3] = stream
    result = table[0]
    for stream in (1, 2):
        if (streams == stream).any():
            result = ops.where(constant(streams == stream), table[stream], result)
    return result


@op("GemmaRotaryEmbedding", domain="com.microsoft")
def gemma_rotary_embedding(emb, q, q_rot, k, k_rot):
    """Queries and keys rotated by the angles ``emb``; ``q_rot`` and ``k_rot`` are their rotated halves."""
    cosine, sine = (ops.unsqueeze(ops.cast(function(emb), to=q.dtype), [1]) for function in (ops.cos, ops.sin))
    return q * cosine + q_rot * sine, k * cosine + k_rot * sine


gemma_rotary_embedding.traits(on_request=True)


def _hold_heads(
    input: Value, hidden: Any, size: Any, half: Any, num_heads: int, rotary_embedding_dim: int
) -> str | None:
    if input.rank == 3 and not num_heads and rotary_embedding_dim:
        return "num_heads is missing, with rotary_embedding_dim and an input of three axes"
    known = isinstance(hidden, int) and isinstance(half, int) and not num_heads
    if known and (not half or hidden % (2 * half)):
        return "last axis is not a multiple of twice the width of the caches, without num_heads"
    if isinstance(hidden, int) and num_heads:
        size = hidden // num_heads
    width = rotary_embedding_dim or size
    if isinstance(width, int) and (width % 2 or differ(width // 2, half)):
        return "rotated size of a head is odd, or not twice the last dim of the caches"
    return None


def _hold_sections(mrope_section: list[int], half: Any, num_heads: int, mrope_layout: int, input: Any) -> str | None:
    if len(mrope_section) != 3 or min(mrope_section) < 0:
        return "mrope_section does not hold three non-negative numbers"
    if isinstance(half, int) and sum(mrope_section) != half:
        return "sum of mrope_section differs from the width of cos_cache"
    if input.rank == 3 and num_heads < 1:
        return "num_heads is missing for an input of three axes"
    return None if mrope_layout in (0, 1) else "mrope_layout is neither 0 nor 1"


rotary_embedding.requires(
    shapes(
        input="batch length hidden | batch heads length size",
        position_ids=" | 1 | batch length",
        cos_cache="positions half",
        sin_cache="positions half",
    ),
    floats("input"),
    same_dtype("input", "cos_cache", "sin_cache"),
    dtypes(position_ids="int64"),
    holds(_hold_heads),
)
m_rotary_embedding.requires(
    shapes(
        input="batch length hidden|batch heads length size",
        position_ids="3 batch length",
        cos_cache="positions half",
        sin_cache="positions half",
    ),
    floats("input", "cos_cache", "sin_cache"),
    same_dtype("input", "cos_cache", "sin_cache"),
    dtypes(position_ids="int64"),
    holds(_hold_sections),
)
gemma_rotary_embedding.requires(
    shapes(
        emb="batch length size",
        q="batch heads length size",
        q_rot="batch heads length size",
        k="batch kv_heads length size",
        k_rot="batch kv_heads length size",
    ),
    floats("emb", "q", "q_rot", "k", "k_rot"),
    same_dtype("q", "q_rot", "k", "k_rot"),
)


# ----- with normalization ---------------------------------------------------------------------------------------------


@op("RMSNormRotary", domain="com.microsoft")
def rms_norm_rotary(
    X,
    scale,
    position_ids,
    cosine,
    sine,
    prefill_numerics=None,
    *,
    epsilon=1e-6,
    flatten_batch=0,
    input_start=0,
    input_width=0,
    output_fp16=0,
    rotary_embedding_dim: int,
    use_fp32_arithmetic=1,
):
    """Normalize ``input_width`` channels of heads [batch, sequence, heads, size] and rotate the first ones.

    Heads are merged afterwards; ``flatten_batch`` also merges instances. The second output is the normalized input. If
    everything is bfloat16, each step is rounded, unless ``use_fp32_arithmetic`` is set or ``prefill_numerics`` is
    non-zero.
    """
    batch, length, heads, _ = dims(X)
    end = input_start + input_width if input_width else None
    x = ops.cast(X[:, :, :, input_start:end], to=DType.float32)
    root = ops.sqrt(ops.reduce_mean(x * x, [-1]) + epsilon)
    narrow = X.dtype is DType.bfloat16 and cosine.dtype is DType.bfloat16 and not output_fp16
    positions = position_ids if position_ids.ndim == 2 else _counted(position_ids, batch, length)
    tables = [ops.unsqueeze(ops.cast(ops.gather(t, positions), to=DType.float32), [2]) for t in (cosine, sine)]

    def rounded(v: Value) -> Value:
        return ops.cast(ops.cast(v, to=DType.bfloat16), to=DType.float32)

    def rotated(v: Value, each: Any) -> Value:
        half = rotary_embedding_dim // 2
        a, b, rest = v[..., :half], v[..., half : 2 * half], v[..., 2 * half :]
        cos, sin = tables
        first, second = each(a * cos) - each(b * sin), each(b * cos) + each(a * sin)
        return ops.concat(each(first), each(second), rest, axis=-1)

    normal = x / root * scale
    if narrow:
        normal = rounded(normal)
    y = rotated(normal, rounded if narrow and not use_fp32_arithmetic else ops.identity)
    if narrow and prefill_numerics is not None:
        prefill = ops.not_(ops.equal(ops.reshape(prefill_numerics, []), 0))
        other = rounded(x * ops.reciprocal(root) * scale)
        normal, y = ops.where(prefill, other, normal), ops.where(prefill, rotated(other, rounded), y)
    sides = [1, batch * length] if flatten_batch else [batch, length]
    flat = reshape(y, [*sides, heads * dims(scale)[0]])
    return ops.cast(flat, to=DType.float16 if output_fp16 else DType.bfloat16), normal


rms_norm_rotary.traits(on_request=True)


rms_norm_rotary.requires(
    shapes(X="batch length heads size", scale="width", cosine="rows half", sine="rows half"),
    dtypes(
        X="bfloat16 float16", scale="float32", position_ids="int64", cosine="bfloat16 float32", prefill_numerics="int32"
    ),
    same_dtype("cosine", "sine"),
    at_least(rotary_embedding_dim=2, input_start=0, input_width=0),
    holds(
        lambda rotary_embedding_dim, half, width, size, input_start, input_width: _hold_widths(
            rotary_embedding_dim, half, width, size, input_start, input_width
        )
    ),
)


def _hold_widths(rotated: int, half: Any, width: Any, size: Any, start: int, wanted: int) -> str | None:
    if rotated % 2 or differ(half, rotated // 2) or (isinstance(width, int) and rotated > width):
        return "rotary_embedding_dim is odd, not twice the columns of cosine, or above those of scale"
    if isinstance(size, int) and (start + wanted > size or differ(width, wanted or size - start)):
        return "number of columns of scale differs from input_width, or from the channels of X after input_start"
    return None
