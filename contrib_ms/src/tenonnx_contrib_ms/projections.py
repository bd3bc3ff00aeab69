"""Projected queries, keys and values: split into heads, normalized, and rotated by position."""

from __future__ import annotations

import tenonnx_standard as ops
from tenonnx.extend import Value
from tenonnx_contrib_ms import scaled_dot_product as core
from tenonnx_standard.normalization import statistics_dtype


def split_all(
    flat: list[Value],
    counts: list[int],
    norms: tuple[Value, Value] | None,
    epsilons: tuple[float, float],
    tables: tuple[Value, Value] | None,
    interleaved: int,
) -> tuple[Value, Value, Value]:
    """Queries and keys concatenated, and values, as [batch, heads, sequence, size], normalized and rotated."""
    rotated = counts[0] + counts[1]
    if norms is not None:
        both, v = _normalized(flat, counts, norms, epsilons)
    elif len(flat) == 1:
        both, v = ops.split(core.split_heads(flat[0], sum(counts)), [rotated, counts[2]], axis=1)
    elif tables is None:
        q, k, v = map(core.split_heads, flat, counts)
        return q, k, v
    else:
        both, v = core.split_heads(ops.concat(*flat[:2], axis=-1), rotated), core.split_heads(flat[2], counts[2])
    if tables is not None:
        both = rotate(both, *tables, rotated, interleaved)
    q, k = ops.split(both, counts[:2], axis=1)
    return q, k, v


def _normalized(
    flat: list[Value], counts: list[int], norms: tuple[Value, Value], epsilons: tuple[float, float]
) -> tuple[Value, Value]:
    """Queries and keys concatenated, each head divided by its root mean square; and the values."""
    if len(flat) == 1:
        reshaped = ops.split(ops.reshape(flat[0], [0, 0, sum(counts), -1]), counts, axis=2)
    else:
        reshaped = [ops.reshape(x, [0, 0, n, -1]) for x, n in zip(flat, counts, strict=True)]
    stash = int(statistics_dtype(reshaped[0]))
    normal = (
        ops.rms_normalization(x, w, epsilon=e, stash_type=stash)
        for x, w, e in zip(reshaped[:2], norms, epsilons, strict=True)
    )
    both = ops.concat(*normal, axis=2)
    return ops.transpose(both, perm=[0, 2, 1, 3]), ops.transpose(reshaped[2], perm=[0, 2, 1, 3])


def rotate(x: Value, cos: Value, sin: Value, count: int, interleaved: int) -> Value:
    """``x`` [batch, heads, sequence, size] rotated by [batch, sequence, half] tables, which may be narrower."""
    size, half = x.shape[3], cos.shape[2]
    width = 2 * half if isinstance(half, int) and not (isinstance(size, int) and 2 * half == size) else 0
    return ops.rotary_embedding(x, cos, sin, interleaved=interleaved, num_heads=count, rotary_embedding_dim=width)


def rotate_from(offset: int, x: Value, cos: Value, sin: Value, count: int, interleaved: int) -> Value:
    """``x`` rotated from channel ``offset`` on."""
    if not offset:
        return rotate(x, cos, sin, count, interleaved)
    return ops.concat(x[:, :, :, :offset], rotate(x[:, :, :, offset:], cos, sin, count, interleaved), axis=3)
