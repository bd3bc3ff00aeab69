"""Components of sparse attention indexers: scores of keys, blocks of keys, and selection of the best."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

import tenonnx_standard as ops
from tenonnx.extend import DType, Value, constant, dims, limits
from tenonnx_standard.checking import dim_of


class Scoring(NamedTuple):
    """Normalization, rotation and comparison of queries and keys, all in float32.

    ``norms`` are the normalization weights of queries and keys, ``tables`` cosines and sines, for the first channels
    or, if ``trailing``, the last ones. ``scale`` multiplies products, ``head_scale`` the head weights.
    """

    norms: tuple[Value, Value]
    tables: tuple[Value, Value]
    epsilon: float
    scale: float | None
    head_scale: float | None
    trailing: bool

    def keys(self, x: Value, positions: Value) -> Value:
        """Normalized and rotated (batch, n, size) keys."""
        return ops.squeeze(self._rotated(ops.unsqueeze(self._normalized(x, self.norms[1]), [2]), positions), [2])

    def scores(self, query: Value, positions: Value, keys: Value, head_weights: Value | None = None) -> Value:
        """(batch, length, n) scores of (batch, length, heads * size) queries and (batch, n, size) keys."""
        size = dim_of(keys, 2)
        q = ops.reshape(ops.cast(query, to=DType.float32), [0, dim_of(query, 1), -1, size])
        q = self._rotated(self._normalized(q, self.norms[0]), positions)
        each = ops.relu(ops.matmul(q, ops.unsqueeze(ops.transpose(keys, perm=[0, 2, 1]), [1])))
        each = each * (self.scale or _root(size))
        if head_weights is not None:
            factor = self.head_scale or _root(dim_of(q, 2))
            each = each * ops.unsqueeze(ops.cast(head_weights, to=DType.float32) * factor, [3])
        return ops.reduce_sum(each, [2], keepdims=0)

    def _normalized(self, x: Value, weight: Value) -> Value:
        x = ops.cast(x, to=DType.float32)
        return ops.rms_normalization(x, ops.cast(weight, to=DType.float32), epsilon=self.epsilon)

    def _rotated(self, x: Value, positions: Value) -> Value:
        """(batch, n, heads, size) rotated, by halves of its first channels, or by pairs of its last ones."""
        cos, sin = (ops.unsqueeze(ops.cast(_at(t, positions), to=DType.float32), [2]) for t in self.tables)
        width = dim_of(cos, 3)
        if self.trailing:
            pairs = ops.reshape(x[:, :, :, -2 * width :], [0, 0, dim_of(x, 2), width, 2])
            first, second = pairs[:, :, :, :, 0], pairs[:, :, :, :, 1]
            rotated = [ops.unsqueeze(y, [4]) for y in (first * cos - second * sin, first * sin + second * cos)]
            rotated = ops.reshape(ops.concat(*rotated, axis=4), [0, 0, dim_of(x, 2), 2 * width])
            return ops.concat(x[:, :, :, : -2 * width], rotated, axis=3)
        part, half = x[:, :, :, :width], width // 2
        swapped = ops.concat(-part[:, :, :, half:], part[:, :, :, :half], axis=3)
        return ops.concat(part * cos + swapped * sin, x[:, :, :, width:], axis=3)


def _at(table: Value, positions: Value) -> Value:
    return ops.gather(table, positions) if table.ndim == 2 else rows_at(table, positions)


def _root(size: Any) -> Any:
    if isinstance(size, int):
        return 1 / math.sqrt(size)
    return ops.reciprocal(ops.sqrt(ops.cast(size, to=DType.float32)))


def rows_at(x: Value, places: Value) -> Value:
    """The rows of (batch, length, size) at ``places`` (batch, n)."""
    batch, length, size = dims(x)
    first = ops.reshape(ops.range_(0, batch, 1), [-1, 1]) * length
    return ops.gather(ops.reshape(x, [-1, size]), places + first)


def appended(past: Value, new: Value, begun: Any, in_place: bool) -> Value:
    if not in_place:
        return ops.concat(past, new, axis=1)
    places = begun + ops.reshape(ops.range_(0, dim_of(new, 1), 1), [1, -1, 1])
    return ops.scatter_elements(past, ops.expand(places, ops.shape(new)), new, axis=1)


def compressed(keys: Value, gates: Value, bias: Value, starts: Value, count: Any, ratio: int, size: Any) -> Value:
    """(batch, count, size) compressed keys of blocks that start at ``starts`` (batch, 1).

    A key is the gated softmax average over a block of (batch, length, 2 * size) and, with the first halves of the
    channels, over the previous block.
    """
    length = dim_of(keys, 1)
    places = starts + ops.reshape(ops.range_(0, count * ratio, 1), [1, -1])
    parts = []
    for x, empty in ((keys, 0.0), (gates, -np.inf)):
        before = ops.reshape(
            rows_at(x, ops.minimum(ops.maximum(places - ratio, 0), length - 1)), [0, count, ratio, 2 * size]
        )
        block = ops.reshape(rows_at(x, ops.minimum(places, length - 1)), [0, count, ratio, 2 * size])
        before, block = (ops.cast(y, to=DType.float32) for y in (before, block))
        if x is gates:
            before, block = (y + ops.cast(bias, to=DType.float32) for y in (before, block))
        is_complete = ops.reshape(places >= ratio, [0, count, ratio, 1])
        before = ops.where(is_complete, before[:, :, :, :size], empty)
        parts.append(ops.concat(before, block[:, :, :, size:], axis=2))
    values, logits = parts
    top = ops.reduce_max(logits, [2])
    finite = ops.less(ops.absolute(top), np.inf)
    weights = ops.softmax(ops.where(finite, logits, 0.0), axis=2)
    return ops.reduce_sum(ops.where(finite, weights * values, 0.0), [2], keepdims=0)


def best(scores: Value, seen: Value, count: int) -> tuple[Value, Value]:
    """Indices of the best ``count`` of the first ``seen`` (batch, length) scores, padded with -1, and a mask."""
    number = dim_of(scores, 2)
    visible = ops.less(ops.range_(0, number, 1), ops.unsqueeze(seen, [2]))
    scores = ops.where(visible, scores, constant(-np.inf, DType.float32))
    longer = ops.pad(scores, [0, 0, 0, 0, 0, most(count - number, 0)], constant(-np.inf, DType.float32))
    found = ops.top_k(longer, [count])[1]
    is_chosen = ops.less(ops.range_(0, count, 1), ops.unsqueeze(ops.minimum(seen, number), [2]))
    return ops.where(is_chosen, found, -1), is_chosen


def tokens_of_blocks(scores: Value, seen: Value, ratio: int, budget: int) -> tuple[Value, Value]:
    """Indices of the tokens in the best blocks of ``seen`` tokens, and of those after the last complete block."""
    blocks_found, is_chosen = best(scores, seen / ratio, budget // ratio)
    blocks = ops.unsqueeze(ops.reduce_sum(ops.cast(is_chosen, to=DType.int64), [2], keepdims=0), [2]) * ratio
    seen = ops.unsqueeze(seen, [2])
    column = ops.range_(0, budget + ratio - 1, 1)
    limits.check_elements([budget], "the selection of an indexer")
    block = ops.gather(
        blocks_found, constant(np.minimum(np.arange(budget + ratio - 1) // ratio, budget // ratio - 1)), axis=2
    )
    ranks = ops.where(ops.less(column, blocks), block * ratio + column % ratio, seen / ratio * ratio + column - blocks)
    return ranks, ops.less(column, blocks + seen % ratio)


def least(a: Any, b: int) -> Any:
    return ops.minimum(a, b) if isinstance(a, Value) else min(a, b)


def most(a: Any, b: int) -> Any:
    return ops.maximum(a, b) if isinstance(a, Value) else max(a, b)
