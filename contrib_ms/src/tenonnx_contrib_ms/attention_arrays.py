"""Grouped-query attention on numpy arrays."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tenonnx.extend import TypeMismatch

Array = np.ndarray[Any, Any]


@np.errstate(all="ignore")
def attend(
    query, key, value, past_key, past_value, seqlens_k, total_sequence_length, cos_cache, sin_cache, position_ids,
    attention_bias, head_sink, k_scale, v_scale, q_norm_weight, k_norm_weight, *,
    causal, do_rotary, kv_num_heads, local_window_size, num_heads, qk_norm_epsilon, qk_output, rotary_interleaved,
    scale, smooth_softmax, softcap, **_,
) -> tuple[Array, ...]:  # fmt: skip
    """See ``attention.group_query_attention``."""
    batch, sequence, width = query.shape
    if key is None:
        size = width // (num_heads + 2 * kv_num_heads)
        query, key, value = np.split(query, [num_heads * size, (num_heads + kv_num_heads) * size], axis=-1)
    size = query.shape[-1] // num_heads
    q, k, v = (x.reshape(batch, sequence, -1, size).transpose(0, 2, 1, 3) for x in (query, key, value))
    if q_norm_weight is not None:
        q, k = _normalised(q, q_norm_weight, qk_norm_epsilon), _normalised(k, k_norm_weight, qk_norm_epsilon)
    lengths = seqlens_k.astype(np.int64).reshape(-1) + 1
    total = sequence if past_key is None else int(total_sequence_length.reshape(()))
    start = lengths - sequence if sequence < total else np.zeros_like(lengths)
    if past_key is not None and not ((start >= 0) & (lengths <= total)).all():
        given = f"seqlens_k {seqlens_k.tolist()}, total_sequence_length {total}, {sequence} new positions"
        raise TypeMismatch(
            "GroupQueryAttention: each length must hold the new positions, within the total", given=given
        )
    rows = start[:, None] + np.arange(sequence)
    if do_rotary:
        positions = rows
        if position_ids is not None:
            positions = position_ids if sequence < total else position_ids[0, 0] + np.arange(sequence)[None]
        q, k = (_rotated(x, cos_cache, sin_cache, positions, rotary_interleaved) for x in (q, k))
    if past_key is not None:
        k, v = _appended(past_key, k, start, total), _appended(past_value, v, start, total)

    stage = np.float32 if query.dtype.itemsize < 4 else query.dtype.type
    keys, values = (x[:, :, :total].astype(stage, copy=False) for x in (k, v))
    grouped = (batch, kv_num_heads, -1)
    logits = np.matmul(
        (q * stage(scale or 1 / math.sqrt(size))).reshape(*grouped, size).astype(stage), keys.swapaxes(2, 3)
    )
    logits = logits.reshape(batch, num_heads, sequence, total)
    if softcap:
        logits = np.tanh(logits / stage(softcap)) * stage(softcap)
    if attention_bias is not None:
        logits += attention_bias.astype(stage, copy=False)
    hidden = _hidden(rows, lengths, total, causal, local_window_size)
    if qk_output == 1:
        raw = np.where(hidden, 0, logits).astype(query.dtype)
    np.copyto(logits, np.finfo(stage).min, where=hidden)
    probabilities = _probabilities(logits, head_sink, smooth_softmax)
    y = np.matmul(probabilities.reshape(*grouped, total), values).reshape(batch, num_heads, sequence, size)
    y = y.transpose(0, 2, 1, 3).reshape(batch, sequence, -1).astype(query.dtype, copy=False)
    if not qk_output:
        return y, k, v
    return y, k, v, raw if qk_output == 1 else np.where(hidden, 0, probabilities).astype(query.dtype)


def _normalised(x: Array, weight: Array, epsilon: float) -> Array:
    wide = x.astype(np.float32, copy=False)
    inverse = 1 / np.sqrt(np.mean(wide * wide, axis=-1, keepdims=True) + np.float32(epsilon))
    return (wide * inverse).astype(x.dtype, copy=False) * weight


def _rotated(x: Array, cos_cache: Array, sin_cache: Array, positions: Array, interleaved: int) -> Array:
    """Pairs of elements turned by the angle of their position; ``positions`` is [batch or 1, sequence]."""
    cos, sin = (cache[positions][:, None] for cache in (cos_cache, sin_cache))
    half = cos.shape[-1]
    real, imaginary = (np.s_[..., : 2 * half : 2], np.s_[..., 1 : 2 * half : 2]) if interleaved else (
        np.s_[..., :half], np.s_[..., half : 2 * half]
    )  # fmt: skip
    y = np.array(x)
    y[real] = cos * x[real] - sin * x[imaginary]
    y[imaginary] = sin * x[real] + cos * x[imaginary]
    return y


def _appended(past: Array, new: Array, start: Array, total: int) -> Array:
    """``new`` behind the first ``start[b]`` places of ``past[b]``, and 0 behind that."""
    batch, groups, sequence, size = new.shape
    present = np.zeros((batch, groups, max(total, past.shape[2]), size), new.dtype)
    first = int(start[0]) if batch else 0
    if (start == first).all():
        present[:, :, :first] = past[:, :, :first]
        present[:, :, first : first + sequence] = new
        return present
    for b, place in enumerate(start.tolist()):
        present[b, :, :place] = past[b, :, :place]
        present[b, :, place : place + sequence] = new[b]
    return present


def _hidden(rows: Array, lengths: Array, total: int, causal: int, window: int) -> Array:
    """Which keys each query does not see, as [batch, 1, query, key]."""
    columns = np.arange(total)
    limits = np.minimum(rows + 1, lengths[:, None]) if causal else lengths[:, None]
    hidden = columns >= limits[:, None, :, None]
    if causal and window > 0:
        hidden = hidden | (columns <= rows[:, None, :, None] - window)
    return hidden


def _probabilities(logits: Array, sink: Array | None, smooth: int) -> Array:
    """The softmax along the last axis, in place; a sink only takes part in the sum."""
    greatest = logits.max(axis=-1, keepdims=True)
    if sink is None and smooth <= 0:
        logits -= greatest
        np.exp(logits, out=logits)
        logits /= logits.sum(axis=-1, keepdims=True)
        return logits
    drain = np.zeros(1, logits.dtype) if sink is None else sink.astype(logits.dtype)
    drain = drain.reshape(1, -1, 1, 1)
    greatest = np.maximum(greatest, drain)
    logits -= greatest
    np.exp(logits, out=logits)
    logits /= logits.sum(axis=-1, keepdims=True) + np.exp(drain - greatest)
    return logits
