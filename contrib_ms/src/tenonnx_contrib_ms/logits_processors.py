"""Logits processors: modification of token scores before a token is selected."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

import tenonnx_standard as ops
from tenonnx.extend import DType, Value, constant
from tenonnx_contrib_ms.decoding import repeat_rows
from tenonnx_contrib_ms.tokens import repeating
from tenonnx_standard.checking import dim_of

LOWEST = float(np.finfo(np.float32).min)
#: Latest start of speech after the first timestamp, in steps of 20 ms.
LATEST_START = 50


class Timestamps(NamedTuple):
    """Whisper's rules for timestamp tokens, which start at ``first``: they occur in pairs and never decrease.

    They are applied only where ``enabled`` is true.
    """

    enabled: Value
    first: int
    eos: int
    start: int
    translate: int = -1
    transcribe: int = -1
    start_of_lm: int = -1
    none: int = -1

    def process(self, scores: Value, sequences: Value) -> Value:
        free, lowest = scores, constant(LOWEST, DType.float32)
        sequences = ops.cast(sequences, to=DType.int64)
        length = ops.reshape(dim_of(sequences, 1), [])
        places = ops.range_(0, length, 1)
        timed = sequences >= self.first
        last_place = ops.reduce_max(ops.where(timed, places, -1), [1])
        any_time = last_place >= 0
        first_place = ops.reduce_min(ops.where(timed, places, length - 1), [1])
        begun = ops.greater(length - 1, first_place)
        last = timed[:, -1:]
        paired = ops.or_(ops.not_(begun), ops.gather(timed, ops.reshape(ops.maximum(length - 2, 0), [1]), axis=1))
        latest = ops.gather_elements(sequences, ops.maximum(last_place, 0), axis=1)
        opened = last & ops.not_(paired)
        latest = latest + ops.where(opened, 0, 1)

        column = ops.range_(0, dim_of(scores, 1), 1)
        time = column >= self.first
        hidden = _is_one_of(column, (self.none, self.start_of_lm))
        hidden = hidden | (begun & _is_one_of(column, (self.start, self.translate, self.transcribe)))
        hidden = hidden | (last & paired & time) | (opened & ops.less(column, self.eos))
        hidden = hidden | (any_time & time & ops.less(column, latest))
        hidden = hidden | (ops.not_(begun) & ops.greater(column, self.first + LATEST_START))
        scores = ops.where(hidden, lowest, scores)

        text, times = scores[:, : self.first], scores[:, self.first :]
        most = ops.reduce_max(times, [1])
        total = ops.reduce_sum(ops.where(ops.greater(times, lowest), ops.exp(times - most), 0.0), [1])
        likely = ops.where(ops.greater(total, 0.0), ops.log(total) + most, lowest)
        scores = ops.where(ops.greater(likely, ops.reduce_max(text, [1])) & ops.not_(time), lowest, scores)
        return ops.where(self.enabled, scores, free)


def _is_one_of(column: Value, tokens: tuple[int, ...]) -> Value:
    result = ops.less(column, 0)
    for token in tokens:
        result = result | ops.equal(column, token)
    return result


class Rules(NamedTuple):
    """The logits processors of a search, in the order of onnxruntime."""

    eos: int
    ngram_size: int
    min_length: Value | None
    penalty: Value | None
    mask: Value | None
    first_mask: Value | None
    temperature: Value | float = 1.0
    presence: Value | None = None
    timestamps: Timestamps | None = None

    def process(self, scores: Value, sequences: Value, step: Value) -> Value:
        """``scores`` (rows, vocabulary) for the tokens after ``sequences``, at a zero-based step."""
        lowest = constant(LOWEST, DType.float32)
        if self.penalty is not None:
            factor = ops.reshape(self.penalty, [])
            punished = ops.where(ops.less(scores, 0.0), scores * factor, scores / factor)
            scores = ops.where(_occurring(sequences, scores), punished, scores)
        if self.ngram_size > 0:
            scores = ops.where(repeating(ops.cast(sequences, to=DType.int64), scores, self.ngram_size), lowest, scores)
        if self.mask is not None:
            scores = ops.where(ops.equal(self.mask, 0), lowest, scores)
        if self.first_mask is not None:
            hidden = repeat_rows(self.first_mask, dim_of(scores, 0) // dim_of(self.first_mask, 0))
            scores = ops.where(ops.and_(ops.equal(hidden, 0), ops.equal(step, 0)), lowest, scores)
        if self.min_length is not None:
            short = ops.less(dim_of(sequences, 1), ops.reshape(ops.cast(self.min_length, to=DType.int64), []))
            end = ops.equal(ops.range_(0, dim_of(scores, 1), 1), self.eos)
            scores = ops.where(ops.and_(short, end), lowest, scores)
        if isinstance(self.temperature, Value) or self.temperature != 1.0:
            scores = scores / self.temperature
        if self.presence is not None:
            scores = scores - self.presence
        return scores if self.timestamps is None else self.timestamps.process(scores, sequences)


def _occurring(sequences: Value, scores: Value) -> Value:
    """Mask of the tokens that occur in each sequence."""
    nothing = ops.expand(constant(0, DType.int32), ops.shape(scores))
    places = ops.cast(sequences, to=DType.int64)
    ones = sequences * 0 + 1
    return ops.cast(ops.scatter_elements(nothing, places, ones, axis=1), to=DType.bool)
