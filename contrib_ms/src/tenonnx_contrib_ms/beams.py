"""Beam search: finished hypotheses and active beams."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

import tenonnx_standard as ops
from tenonnx.extend import DType, Value, constant
from tenonnx_contrib_ms.decoding import Decoded, Decoding, all_of, filled, repeated
from tenonnx_contrib_ms.logits_processors import Rules
from tenonnx_standard.checking import dim_of

WORST = -1e300


class Hypotheses(NamedTuple):
    """The best finished sequences, ``beams`` per prompt: tokens, scores, and whether better ones are impossible.

    Scores are float64. ``WORST`` is the -inf of a sequence of masked tokens, -inf means no sequence.
    """

    batch: Any
    beams: Any
    penalty: Value
    early: bool
    pad: int
    max_length: Value

    @property
    def first_rows(self) -> Value:
        """Row index of the first beam of each prompt."""
        return ops.reshape(ops.range_(0, self.batch, 1), [-1, 1]) * self.beams

    def empty(self) -> list[Value]:
        length = ops.reshape(ops.cast(self.max_length, to=DType.int64), [])
        tokens = ops.expand(constant(self.pad, DType.int32), [self.batch, self.beams, length])
        scores = ops.expand(constant(-np.inf, DType.float64), [self.batch, self.beams])
        return [tokens, scores, ops.expand(constant(False), [self.batch])]

    def _score(self, sums: Value, sequences: Value) -> Value:
        """The sum of log-probabilities divided by the length penalty."""
        length = ops.cast(ops.reshape(dim_of(sequences, 1), []), to=DType.float32)
        return ops.maximum(
            ops.cast(sums / ops.pow_(length, self.penalty), to=DType.float64), constant(WORST, DType.float64)
        )

    def with_ends(
        self, kept: Sequence[Value], sequences: Value, sums: Value, beams: Value, chosen: Value
    ) -> list[Value]:
        """Add the ``chosen`` ones of the ``sequences`` with indices ``beams`` (batch, n)."""
        tokens, scores, done = kept
        chosen = ops.and_(chosen, ops.not_(ops.unsqueeze(done, [1])))
        new = ops.where(chosen, self._score(sums, sequences), constant(-np.inf, DType.float64))
        padded = filled(sequences, self.max_length, self.pad)
        tokens = ops.concat(tokens, ops.gather(padded, beams + self.first_rows), axis=1)
        return [*_largest(tokens, ops.concat(scores, new, axis=1), self.beams), done]

    def finished(self, kept: Sequence[Value], sums: Value, sequences: Value) -> list[Value]:
        """Set ``done`` where enough sequences are finished and no active beam can exceed the worst of them."""
        tokens, scores, done = kept
        worst = ops.reduce_min(scores, [1], keepdims=0)
        enough = worst >= WORST
        if not self.early:
            enough = ops.and_(enough, worst >= self._score(self._best_to_come(sums), sequences))
        return [tokens, scores, ops.or_(done, enough)]

    def _best_to_come(self, sums: Value) -> Value:
        """The maximum of (batch, 2 * beams) ``sums`` for each prompt, with an error of onnxruntime's kernel.

        The kernel reads from index ``beams`` times the prompt number on; from the second prompt on, it thus reads sums
        of the previous prompt.
        """
        seen = self.first_rows + ops.range_(0, self.beams * 2, 1)
        return ops.reduce_max(ops.gather(ops.reshape(sums, [-1]), seen), [1], keepdims=0)

    def best(self, kept: Sequence[Value], sequences: Value, sums: Value, count: Value) -> tuple[Value, Value]:
        """The ``count`` best sequences, active beams included."""
        every = ops.expand(ops.range_(0, self.beams, 1), [self.batch, self.beams])
        tokens, scores, _ = self.with_ends(kept, sequences, sums, every, ops.equal(every, every))
        tokens, scores = _largest(tokens, scores, count)
        return tokens, ops.cast(ops.where(ops.equal(scores, WORST), -np.inf, scores), to=DType.float32)


def _largest(tokens: Value, scores: Value, count: Value) -> tuple[Value, Value]:
    """The ``count`` best of (batch, n) ``scores``, and their (batch, n, length) ``tokens``."""
    result, places = ops.top_k(scores, ops.reshape(count, [1]))
    first = ops.reshape(ops.range_(0, dim_of(scores, 0), 1), [-1, 1]) * dim_of(scores, 1)
    rows = ops.reshape(tokens, [-1, dim_of(tokens, 2)])
    return ops.gather(rows, places + first), result


def search(decoding: Decoding, rules: Rules, book: Hypotheses, count: Value, outputs: int) -> tuple[Value, ...]:
    """(batch, count, max_length) sequences, their scores, and the scores of all tokens at each step."""
    batch, beams = book.batch, book.beams
    pad, length = book.pad, dim_of(decoding.sequences, 1)

    def step(decode: Callable[[list[Value]], Decoded], start: Any, state: Sequence[Value]) -> list[Value]:
        feeds, (sequences, sums, *kept) = list(state[:-5]), state[-5:]
        logits, feeds = decode(feeds)
        scores = rules.process(ops.log_softmax(logits), sequences, start) + ops.reshape(sums, [-1, 1])
        width = dim_of(scores, 1)
        best, places = ops.top_k(ops.reshape(scores, [batch, -1]), ops.reshape(beams * 2, [1]))
        origins, tokens = places / width, places % width
        ends = ops.equal(tokens, rules.eos)
        rank = ops.range_(0, beams * 2, 1)
        done = ops.unsqueeze(kept[2], [1])
        kept = book.with_ends(kept, sequences, best, origins, ops.and_(ends, rank < beams))
        kept = book.finished(kept, best, sequences)
        order = ops.top_k(ops.where(ends, rank + beams * 2, rank), ops.reshape(beams, [1]), largest=0)[1]
        sums, origins, tokens = (ops.gather_elements(x, order, axis=1) for x in (best, origins, tokens))
        rows = ops.reshape(ops.where(done, 0, origins + book.first_rows), [-1])
        sums, tokens = ops.where(done, 0.0, sums), ops.where(done, pad, tokens)
        token = ops.cast(ops.reshape(tokens, [-1, 1]), to=DType.int32)
        sequences = ops.concat(ops.gather(sequences, rows), token, axis=1)
        feeds = decoding.following(decoding.of_beams(feeds, rows), token, sequences)
        all_scores = ops.reshape(scores, [batch, beams, width])
        return [ops.not_(all_of(kept[2])), *feeds, sequences, sums, *kept, all_scores]

    later = ops.greater(ops.range_(0, beams, 1), 0)
    sums = ops.expand(ops.where(later, constant(-1e9, DType.float32), 0.0), [batch, beams])
    state = [*decoding.feeds, decoding.sequences, sums, *book.empty()]
    *found, all_scores = repeated(step, decoding, state, length, book.max_length, gives=1)
    sequences, scores = book.best(found[-3:], found[-5], found[-4], count)
    if outputs < 3:
        return sequences, scores
    missing = ops.reshape(ops.cast(book.max_length, to=DType.int64), []) - length - dim_of(all_scores, 0)
    return sequences, scores, ops.pad(all_scores, [0, 0, 0, 0, missing, 0, 0, 0])
