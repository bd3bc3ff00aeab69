"""Generation of text by a decoder in a subgraph: the best token at each step, or beams of the best sequences."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

import tenonnx_standard as ops
from tenonnx.extend import (
    REQUIRED,
    DType,
    Graph,
    TensorType,
    Value,
    at_least,
    constant,
    dims,
    dtypes,
    floats,
    holds,
    inline,
    integers,
    op,
    shapes,
    subgraph,
)
from tenonnx_contrib_ms.tokens import repeating
from tenonnx_standard.checking import dim_of

#: Which of several outputs or inputs of the decoder of GPT-2 are no state.
IDS, POSITIONS, MASK = range(3)

LOWEST = float(np.finfo(np.float32).min)
WORST = -1e300


@op("GreedySearch", domain="com.microsoft")
def greedy_search(
    input_ids, max_length, min_length=None, repetition_penalty=None, vocab_mask=None, prefix_vocab_mask=None,
    attention_mask=None, *,
    decoder: Graph, decoder_start_token_id=-1, encoder: Graph | None = None, eos_token_id: int,
    init_decoder: Graph | None = None, model_type=0, no_repeat_ngram_size=0, pad_token_id: int, vocab_size=-1,
):  # fmt: skip
    """Prompts with the most probable token behind them, again and again until they are ``max_length`` long.

    The decoder is that of GPT-2: it takes tokens, positions, the mask of attention and past states, and gives logits
    and present states. Behind the end of a sequence there is padding.
    """
    first = _first_state(decoder, input_ids, attention_mask, pad_token_id, 1, max_length)
    rules = Rules(
        vocab_size, eos_token_id, no_repeat_ngram_size, min_length, repetition_penalty, vocab_mask, prefix_vocab_mask
    )

    def step(decoder: Graph, start: Any, state: Sequence[Value]) -> list[Value]:
        feeds, (sequences, done) = state[:-2], state[-2:]
        logits, feeds = _decoded(decoder, feeds)
        scores = rules.applied(logits, sequences, start)
        best = ops.cast(ops.argmax(scores, axis=1, keepdims=0), to=DType.int32)
        done = ops.or_(done, ops.equal(best, constant(eos_token_id, DType.int32)))
        token = ops.unsqueeze(ops.where(done, constant(pad_token_id, DType.int32), best), [1])
        return [ops.not_(_all(done)), *_with_token(feeds, token), ops.concat(sequences, token, axis=1), done]

    never = ops.not_(ops.equal(input_ids[:, 0], input_ids[:, 0]))
    found = _repeated(step, init_decoder, decoder, [*first, input_ids, never], input_ids, max_length)
    return _filled(found[-2], max_length, pad_token_id)


@op("BeamSearch", domain="com.microsoft")
def beam_search(
    input_ids, max_length, min_length=None, num_beams=REQUIRED, num_return_sequences=REQUIRED, length_penalty=None,
    repetition_penalty=None, vocab_mask=None, prefix_vocab_mask=None, attention_mask=None, decoder_input_ids=None,
    logits_processor=None, *,
    decoder: Graph, decoder_start_token_id=-1, early_stopping=0, encoder: Graph | None = None, eos_token_id: int,
    init_decoder: Graph | None = None, model_type=0, no_repeat_ngram_size=0, pad_token_id: int, vocab_size=-1,
    _outputs=None,
):  # fmt: skip
    """The most probable ends of prompts among ``num_beams`` that are followed side by side.

    The decoder is as that of GreedySearch. The score of a sequence is the sum of the logarithms of its probabilities,
    by its length to the power of ``length_penalty``. Outputs are (batch, returned, max_length) sequences, their scores,
    and the scores of all tokens at each step.
    """
    beams, returned = (ops.reshape(ops.cast(x, to=DType.int64), []) for x in (num_beams, num_return_sequences))
    batch, prompt = dim_of(input_ids, 0), dim_of(input_ids, 1)
    first = _first_state(decoder, input_ids, attention_mask, pad_token_id, beams, max_length)
    rules = Rules(
        vocab_size, eos_token_id, no_repeat_ngram_size, min_length, repetition_penalty, vocab_mask, prefix_vocab_mask
    )
    penalty = constant(1.0, DType.float32) if length_penalty is None else ops.reshape(length_penalty, [])
    book = Hypotheses(batch, beams, penalty, bool(early_stopping), pad_token_id, max_length)

    def step(decoder: Graph, start: Any, state: Sequence[Value]) -> list[Value]:
        feeds, (sequences, sums, *kept) = state[:-5], state[-5:]
        logits, feeds = _decoded(decoder, feeds)
        scores = rules.applied(ops.log_softmax(logits), sequences, start) + ops.reshape(sums, [-1, 1])
        width = dim_of(scores, 1)
        best, places = ops.top_k(ops.reshape(scores, [batch, -1]), ops.reshape(beams * 2, [1]))
        origins, tokens = places / width, places % width
        ends = ops.equal(tokens, eos_token_id)
        rank = ops.range_(0, beams * 2, 1)
        done = ops.unsqueeze(kept[2], [1])
        kept = book.with_ends(kept, sequences, best, origins, ops.and_(ends, rank < beams))
        kept = book.finished(kept, best, sequences)
        order = ops.top_k(ops.where(ends, rank + beams * 2, rank), ops.reshape(beams, [1]), largest=0)[1]
        sums, origins, tokens = (ops.gather_elements(x, order, axis=1) for x in (best, origins, tokens))
        rows = ops.reshape(ops.where(done, 0, origins + book.first_rows), [-1])
        sums, tokens = ops.where(done, 0.0, sums), ops.where(done, pad_token_id, tokens)
        token = ops.cast(ops.reshape(tokens, [-1, 1]), to=DType.int32)
        feeds = [*feeds[: MASK + 1], *(ops.gather(x, rows, axis=1) for x in feeds[MASK + 1 : -1]), feeds[-1]]
        state = [*_with_token(feeds, token), ops.concat(ops.gather(sequences, rows), token, axis=1), sums, *kept]
        return [ops.not_(_all(kept[2])), *state, ops.reshape(scores, [batch, beams, width])]

    later = ops.greater(ops.range_(0, beams, 1), 0)
    sums = ops.expand(ops.where(later, constant(-1e9, DType.float32), 0.0), [batch, beams])
    state = [*first, _each(input_ids, beams), sums, *book.empty()]
    *found, all_scores = _repeated(step, init_decoder, decoder, state, input_ids, max_length, gives=1)
    sequences, scores = book.best(found[-3:], found[-5], found[-4], returned)
    if _outputs == 1:
        return sequences
    missing = ops.reshape(ops.cast(max_length, to=DType.int64), []) - prompt - dim_of(all_scores, 0)
    return (sequences, scores, ops.pad(all_scores, [0, 0, 0, 0, missing, 0, 0, 0]))[:_outputs]


@dataclass(frozen=True)
class Hypotheses:
    """The best sequences that have come to their end, ``beams`` for each prompt: their tokens, scores, and whether no
    better ones can come.

    Scores are kept as float64, where the -inf of a sequence of masked tokens is ``WORST``, and -inf is no sequence.
    """

    batch: Any
    beams: Any
    penalty: Value
    early: bool
    pad: int
    max_length: Value

    @property
    def first_rows(self) -> Value:
        """In which row the beams of each prompt begin."""
        return ops.reshape(ops.range_(0, self.batch, 1), [-1, 1]) * self.beams

    def empty(self) -> list[Value]:
        length = ops.reshape(ops.cast(self.max_length, to=DType.int64), [])
        tokens = ops.expand(constant(self.pad, DType.int32), [self.batch, self.beams, length])
        scores = ops.expand(constant(-np.inf, DType.float64), [self.batch, self.beams])
        return [tokens, scores, ops.expand(constant(False), [self.batch])]

    def _score(self, sums: Value, sequences: Value) -> Value:
        """The sum of logarithms of probabilities by the length."""
        length = ops.cast(ops.reshape(dim_of(sequences, 1), []), to=DType.float32)
        return ops.maximum(
            ops.cast(sums / ops.pow_(length, self.penalty), to=DType.float64), constant(WORST, DType.float64)
        )

    def with_ends(
        self, kept: Sequence[Value], sequences: Value, sums: Value, beams: Value, chosen: Value
    ) -> list[Value]:
        """With those of ``sequences`` that ``beams`` (batch, n) names and that are ``chosen``."""
        tokens, scores, done = kept
        chosen = ops.and_(chosen, ops.not_(ops.unsqueeze(done, [1])))
        new = ops.where(chosen, self._score(sums, sequences), constant(-np.inf, DType.float64))
        filled = _filled(sequences, self.max_length, self.pad)
        tokens = ops.concat(tokens, ops.gather(filled, beams + self.first_rows), axis=1)
        return [*_largest(tokens, ops.concat(scores, new, axis=1), self.beams), done]

    def finished(self, kept: Sequence[Value], sums: Value, sequences: Value) -> list[Value]:
        """``done`` where there are enough, of which none is worse than what can come."""
        tokens, scores, done = kept
        worst = ops.reduce_min(scores, [1], keepdims=0)
        enough = worst >= WORST
        if not self.early:
            enough = ops.and_(enough, worst >= self._score(self._best_to_come(sums), sequences))
        return [tokens, scores, ops.or_(done, enough)]

    def _best_to_come(self, sums: Value) -> Value:
        """The largest of (batch, 2 * beams) ``sums`` for each prompt.

        The kernel reads them from ``beams`` times the number of the prompt on, thus behind the first prompt in part
        those of the one before.
        """
        seen = self.first_rows + ops.range_(0, self.beams * 2, 1)
        return ops.reduce_max(ops.gather(ops.reshape(sums, [-1]), seen), [1], keepdims=0)

    def best(self, kept: Sequence[Value], sequences: Value, sums: Value, count: Value) -> tuple[Value, Value]:
        """The best ones, among them the beams that did not come to an end."""
        every = ops.expand(ops.range_(0, self.beams, 1), [self.batch, self.beams])
        tokens, scores, _ = self.with_ends(kept, sequences, sums, every, ops.equal(every, every))
        tokens, scores = _largest(tokens, scores, count)
        return tokens, ops.cast(ops.where(ops.equal(scores, WORST), -np.inf, scores), to=DType.float32)


def _largest(tokens: Value, scores: Value, count: Value) -> tuple[Value, Value]:
    """The so many best of (batch, n) ``scores``, and their (batch, n, length) ``tokens``."""
    found, places = ops.top_k(scores, ops.reshape(count, [1]))
    first = ops.reshape(ops.range_(0, dim_of(scores, 0), 1), [-1, 1]) * dim_of(scores, 1)
    rows = ops.reshape(tokens, [-1, dim_of(tokens, 2)])
    return ops.gather(rows, places + first), found


@dataclass(frozen=True)
class Rules:
    """What scores of tokens are subject to before one is chosen."""

    vocabulary: int
    eos: int
    repeated: int
    min_length: Value | None
    penalty: Value | None
    mask: Value | None
    first_mask: Value | None

    def applied(self, scores: Value, sequences: Value, step: Value) -> Value:
        """``scores`` (rows, vocabulary) of the tokens behind ``sequences``, at a step counted from 0 on."""
        lowest = constant(LOWEST, DType.float32)
        if self.penalty is not None:
            factor = ops.reshape(self.penalty, [])
            punished = ops.where(ops.less(scores, 0.0), scores * factor, scores / factor)
            scores = ops.where(_occurring(sequences, scores), punished, scores)
        if self.repeated:
            scores = ops.where(repeating(ops.cast(sequences, to=DType.int64), scores, self.repeated), lowest, scores)
        if self.mask is not None:
            scores = ops.where(ops.equal(self.mask, 0), lowest, scores)
        if self.first_mask is not None:
            hidden = _each(self.first_mask, dim_of(scores, 0) // dim_of(self.first_mask, 0))
            scores = ops.where(ops.and_(ops.equal(hidden, 0), ops.equal(step, 0)), lowest, scores)
        if self.min_length is not None:
            short = ops.less(dim_of(sequences, 1), ops.reshape(ops.cast(self.min_length, to=DType.int64), []))
            end = ops.equal(ops.range_(0, dim_of(scores, 1), 1), self.eos)
            scores = ops.where(ops.and_(short, end), lowest, scores)
        return scores


def _occurring(sequences: Value, scores: Value) -> Value:
    """Which tokens are in a sequence already."""
    nothing = ops.expand(constant(0, DType.int32), ops.shape(scores))
    places = ops.cast(sequences, to=DType.int64)
    ones = sequences * 0 + 1
    return ops.cast(ops.scatter_elements(nothing, places, ones, axis=1), to=DType.bool)


# ----- the loop -------------------------------------------------------------------------------------------------------

Step = Callable[[Graph, Any, Sequence[Value]], list[Value]]


def _repeated(
    step: Step, init: Graph | None, decoder: Graph, state: list[Value], prompt: Value, max_length: Value, gives: int = 0
) -> list[Value]:
    """The state after all steps, and what they gave, one below the other. The first step may have its own decoder."""
    count = ops.reshape(ops.cast(max_length, to=DType.int64), []) - dim_of(prompt, 1)
    before: list[Value] = []
    going_on: Value | None = None
    start: Any = 0
    if init is not None:
        going_on, *state = step(init, constant(0, DType.int64), state)
        state, before = state[: len(state) - gives], [ops.unsqueeze(x, [0]) for x in state[len(state) - gives :]]
        count, start = count - 1, 1

    def body(number: Value, _: Value, *values: Value) -> list[Value]:
        return step(decoder, number + start if start else number, values)

    formals = [("step", TensorType(DType.int64, ())), ("going_on", TensorType(DType.bool, ()))]
    formals += [(f"state_{k}", _of_any_length(value)) for k, value in enumerate(state)]
    found = list(ops.loop(count, going_on, *state, body=subgraph(body, formals, name="step")))
    stacked = found[len(state) :]
    if before:  # a loop that makes no step gives no sizes either
        shaped = [ops.reshape(b, [dim_of(b, 0), *dims(a)[1:]]) for a, b in zip(before, stacked, strict=True)]
        stacked = [ops.concat(a, b, axis=0) for a, b in zip(before, shaped, strict=True)]
    return [*found[: len(state)], *stacked]


def _of_any_length(value: Value) -> TensorType:
    """The type of a value that grows from step to step: rows of tokens, or a state (2, rows, heads, length, size)."""
    grows = {2: 1, 5: 3}.get(value.ndim)
    return TensorType(value.dtype, tuple(None if axis == grows else size for axis, size in enumerate(value.shape)))


def _first_state(
    decoder: Graph, input_ids: Value, attention_mask: Value | None, pad: int, beams: Any, max_length: Value
) -> list[Value]:
    """What the decoder takes first: tokens, their positions, which leave out padding, and no past; and how many tokens
    but for padding there are."""
    known = ops.cast(ops.not_(ops.equal(input_ids, constant(pad, DType.int32))), to=DType.int32)
    positions = (ops.cumsum(known, 1) - 1) * known
    mask = known if attention_mask is None else attention_mask
    rows = dim_of(input_ids, 0) * beams
    past = []
    for value in decoder.all_inputs[MASK + 1 :]:
        two, _, heads, _, size = value.shape
        past.append(ops.expand(constant(0.0, value.dtype), [two, rows, heads, 0, size]))
    seen = ops.reduce_sum(known, [1])
    return [*(_each(x, beams) for x in (input_ids, positions, mask)), *past, _each(seen, beams)]


def _each(x: Value, beams: Any) -> Value:
    """Every row of ``x`` so many times."""
    if isinstance(beams, int) and beams == 1:
        return x
    length = dim_of(x, 1)
    return ops.reshape(ops.expand(ops.unsqueeze(x, [1]), [1, beams, 1]), [-1, length])


def _decoded(decoder: Graph, feeds: Sequence[Value]) -> tuple[Value, list[Value]]:
    """The logits behind the last token, and the feeds with the present states in place of the past ones."""
    logits, *present = inline(decoder, feeds[:-1], captures=list(decoder.pending or decoder.captures))
    return logits[:, -1], [*feeds[: MASK + 1], *present, feeds[-1]]


def _with_token(feeds: Sequence[Value], token: Value) -> list[Value]:
    """What the decoder takes next: ``token``, at the place that is told by how many were seen."""
    _, _, mask, *past, seen = feeds
    return [token, seen, ops.concat(mask, mask[:, :1] * 0 + 1, axis=1), *past, seen + constant(1, DType.int32)]


def _filled(sequences: Value, max_length: Value, pad: int) -> Value:
    missing = ops.reshape(ops.cast(max_length, to=DType.int64), []) - dim_of(sequences, 1)
    return ops.pad(sequences, [0, 0, 0, missing], constant(pad, DType.int32))


def _all(flags: Value) -> Value:
    return ops.cast(ops.reduce_min(ops.cast(flags, to=DType.int32), keepdims=0), to=DType.bool)


# ----- what must hold -------------------------------------------------------------------------------------------------


def _hold_decoder(decoder: Graph, init_decoder: Any, model_type: int, encoder: Any) -> str | None:
    if model_type != 0 or encoder is not None:
        return "model_type must be 0, and there must be no encoder: other models than GPT-2 are not supported"
    for graph in (decoder, init_decoder):
        if graph is None:
            continue
        states = len(graph.outputs) - 1
        if states < 1 or len(graph.all_inputs) != states + MASK + 1:
            return (
                "a decoder must take input_ids, position_ids, attention_mask and past states, "
                "and give logits and as many present states"
            )
        if any(value.rank != 5 for value in graph.all_inputs[MASK + 1 :]):
            return "the past states of a decoder must be declared as [2, batch, heads, length, size]"
    return None


_COMMON = {
    "input_ids": "batch length", "max_length": "|1", "min_length": "|1", "repetition_penalty": "|1",
    "vocab_mask": "vocabulary", "prefix_vocab_mask": "batch vocabulary", "attention_mask": "batch length",
}  # fmt: skip
_COUNTS = "max_length", "min_length", "vocab_mask", "prefix_vocab_mask"

greedy_search.requires(
    shapes(**_COMMON),
    dtypes(input_ids="int32", attention_mask="int32"),
    integers(*_COUNTS),
    floats("repetition_penalty"),
    at_least(no_repeat_ngram_size=0),
    holds(_hold_decoder),
)
beam_search.requires(
    shapes(**_COMMON, num_beams="|1", num_return_sequences="|1", length_penalty="|1"),
    dtypes(input_ids="int32", attention_mask="int32"),
    integers(*_COUNTS, "num_beams", "num_return_sequences"),
    floats("repetition_penalty", "length_penalty"),
    at_least(no_repeat_ngram_size=0),
    holds(_hold_decoder),
)
