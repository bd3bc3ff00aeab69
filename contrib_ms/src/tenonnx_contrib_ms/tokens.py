"""Token ops for generation loops."""

from __future__ import annotations

import math

import tenonnx_standard as ops
from tenonnx.extend import DType, Value, at_least, constant, dtypes, floats, holds, limits, op, shapes
from tenonnx_standard.checking import dim_of


@op("NGramRepeatBlock", domain="com.microsoft")
def n_gram_repeat_block(input_ids, scores, *, ngram_size: int):
    """``scores`` with minus infinity for tokens that would repeat an n-gram of ``ngram_size``."""
    return ops.where(repeating(input_ids, scores, ngram_size), constant(-math.inf, scores.dtype), scores)


def repeating(input_ids: Value, scores: Value, size: int) -> Value:
    """Mask of the tokens (one per score) that would complete an n-gram of ``size`` that occurred before."""
    length = dim_of(input_ids, 1)
    count = ops.maximum(length - (size - 1), 0) if isinstance(length, Value) else max(length - size + 1, 0)
    last = input_ids[:, size - 1 :]
    same = ops.equal(last, last)
    for k in range(size - 1):
        place = length - (size - 1) + k
        if not isinstance(place, Value) and place < 0:
            continue  # too short for an n-gram
        same = ops.and_(same, ops.equal(input_ids[:, k : count + k], input_ids[:, place : place + 1]))
    nothing = ops.expand(constant(0, DType.int32), ops.shape(scores))
    found = ops.scatter_elements(nothing, last, ops.cast(same, to=DType.int32), axis=1, reduction="max")
    return ops.cast(found, to=DType.bool)


@op("BifurcationDetector", domain="com.microsoft")
def bifurcation_detector(
    src_tokens, cur_tokens, prev_suffix_match_idx, pred_tokens=None, *, max_ngram_size=3, min_ngram_size=1
):
    """``cur_tokens`` plus the predicted tokens that match the source, and one more; and where the source continues.

    The latter is the position after the only occurrence in the source of the output's last n-gram. The length of the
    n-gram grows from ``min_ngram_size`` to ``max_ngram_size`` while there are occurrences; -1 if there are none or
    several.
    """
    tokens = cur_tokens
    if pred_tokens is not None:
        first = ops.reshape(prev_suffix_match_idx, [])
        rest = src_tokens[first:]
        count = dim_of(rest, 0)
        differ = ops.not_(ops.equal(rest, pred_tokens[:count]))
        agreeing = ops.reduce_min(ops.concat(ops.where(differ, ops.range_(0, count, 1), count), [count], axis=0), [0])
        tokens = ops.concat(cur_tokens, ops.slice_(pred_tokens, [0], agreeing + 1), axis=0)
    return tokens, ops.reshape(
        _goes_on(src_tokens, tokens, min_ngram_size, max_ngram_size), ops.shape(prev_suffix_match_idx)
    )


def _goes_on(source: Value, tokens: Value, least: int, most: int) -> Value:
    length, known = dim_of(source, 0), dim_of(tokens, 0)
    place, searching = constant(-1, DType.int64), constant(True, DType.bool)
    limits.check("entries", most, "a sequence of tokens to look for")
    padded = ops.concat([-1] * most, tokens, axis=0)
    for size in range(least, most + 1):
        starts = ops.range_(0, ops.maximum(length - (size - 1), 0), 1)
        runs = ops.gather(source, ops.unsqueeze(starts, [1]) + list(range(size)))
        same = ops.reduce_min(ops.cast(ops.equal(runs, padded[-size:]), to=DType.int32), [1], keepdims=0)
        hits = ops.cast(same, to=DType.int64)
        number = ops.reduce_sum(hits, [0], keepdims=0)
        nowhere = ops.unsqueeze(length, [0]) if isinstance(length, Value) else [length]
        first = ops.reduce_min(
            ops.concat(ops.where(ops.equal(hits, 1), starts, length), nowhere, axis=0), [0], keepdims=0
        )
        has_more = searching & (number > 0) & (known >= size if isinstance(known, Value) else constant(known >= size))
        behind = first + size
        at_end = behind >= length
        found = ops.where((number > 1) & ops.not_(at_end), -1, behind)
        place = ops.where(has_more, found, place)
        searching = has_more & ops.not_(at_end)
    return place


def _hold_sizes(min_ngram_size: int, max_ngram_size: int) -> str | None:
    return None if 1 <= min_ngram_size <= max_ngram_size else "min_ngram_size lies outside 1 to max_ngram_size"


n_gram_repeat_block.requires(
    shapes(input_ids="batch length", scores="batch vocabulary"),
    dtypes(input_ids="int64"),
    floats("scores"),
    at_least(ngram_size=1),
)
bifurcation_detector.requires(
    shapes(src_tokens="source", cur_tokens="current", prev_suffix_match_idx="|1", pred_tokens="predicted"),
    dtypes(src_tokens="int64", cur_tokens="int64", prev_suffix_match_idx="int64", pred_tokens="int64"),
    holds(_hold_sizes),
)
