"""Decoder subgraphs, and the generation loop."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import tenonnx_standard as ops
from tenonnx.extend import DType, Graph, TensorType, Value, constant, dims, inline, subgraph
from tenonnx_standard.checking import dim_of

#: Logits of the next token, and the decoder's next inputs except for the token.
Decoded = tuple[Value, list[Value]]
#: Step of the loop: takes the decoder, the step number and the state; returns whether to continue, the next state, and
#: outputs.
DecoderStep = Callable[[Callable[[list[Value]], Decoded], Any, Sequence[Value]], list[Value]]


class Decoding(Protocol):
    """A running decoder; ``feeds`` are the inputs that change from step to step."""

    sequences: Value
    feeds: list[Value]

    @property
    def first(self) -> Callable[[list[Value]], Decoded] | None:
        """Function for the first step, for decoders with a separate graph for it."""

    def decoded(self, feeds: list[Value]) -> Decoded: ...

    def of_beams(self, feeds: list[Value], rows: Value) -> list[Value]:
        """Select the given rows of all states."""

    def following(self, feeds: list[Value], token: Value, sequences: Value) -> list[Value]:
        """Next inputs of the decoder, for sequences that end with ``token``."""


class DecoderOnly:
    """A decoder like GPT-2: it takes tokens, positions, attention mask and past states, and returns present states."""

    #: Number of inputs before the states.
    OTHERS = 3

    def __init__(
        self, decoder: Graph, init: Graph | None, input_ids: Value, mask: Value | None, pad: int, beams: Any
    ) -> None:
        self.decoder, self.init = decoder, init
        known = ops.cast(ops.not_(ops.equal(input_ids, constant(pad, DType.int32))), to=DType.int32)
        positions = (ops.cumsum(known, 1) - 1) * known
        rows = dim_of(input_ids, 0) * beams
        past = []
        for value in decoder.all_inputs[self.OTHERS :]:
            two, _, heads, _, size = value.shape
            past.append(ops.expand(constant(0.0, value.dtype), [two, rows, heads, 0, size]))
        seen = ops.reduce_sum(known, [1])
        self.sequences = repeat_rows(input_ids, beams)
        self.feeds = [
            self.sequences,
            *(repeat_rows(x, beams) for x in (positions, known if mask is None else mask, seen)),
            *past,
        ]

    @property
    def first(self) -> Callable[[list[Value]], Decoded] | None:
        init = self.init
        return None if init is None else lambda feeds: self._run_decoder(init, feeds)

    def decoded(self, feeds: list[Value]) -> Decoded:
        return self._run_decoder(self.decoder, feeds)

    def _run_decoder(self, decoder: Graph, feeds: list[Value]) -> Decoded:
        *others, seen = feeds[: self.OTHERS + 1]
        logits, *present = inline(decoder, [*others, *feeds[self.OTHERS + 1 :]])
        return logits[:, -1], [*others, seen, *present]

    def of_beams(self, feeds: list[Value], rows: Value) -> list[Value]:
        return [*feeds[: self.OTHERS + 1], *(ops.gather(x, rows, axis=1) for x in feeds[self.OTHERS + 1 :])]

    def following(self, feeds: list[Value], token: Value, sequences: Value) -> list[Value]:
        _, _, mask, seen, *past = feeds
        return [token, seen, ops.concat(mask, mask[:, :1] * 0 + 1, axis=1), seen + constant(1, DType.int32), *past]


class EncoderDecoder:
    """Encoder and decoder, like T5 and Whisper: the encoder computes the first logits, hidden and decoder states.

    The decoder takes one token, or all tokens unless its declared length is 1; the hidden states of the encoder; its
    own states, and those from the encoder. It returns logits and its own states.
    """

    def __init__(
        self, encoder: Graph, decoder: Graph, given: list[Value], mask: Value | None, start: Value, beams: Any
    ) -> None:
        self.decoder = decoder
        encoded = inline(encoder, [*given, start][: len(encoder.inputs)])
        logits, hidden, *states = (repeat_rows(x, beams) for x in encoded)
        own = len(states) // 2
        self.logits = logits[:, -1]
        self.fixed = [] if mask is None else [repeat_rows(mask, beams)]
        if has_hidden_states(decoder):
            self.fixed.append(hidden)
        self.cross_states = states[own:]
        self.is_single_token = decoder.all_inputs[0].shape[1] == 1
        self.sequences = repeat_rows(start, beams)
        self.feeds = [self.sequences, *states[:own]]

    @property
    def first(self) -> Callable[[list[Value]], Decoded]:
        return lambda feeds: (self.logits, feeds)

    def decoded(self, feeds: list[Value]) -> Decoded:
        token, *past = feeds
        logits, *present = inline(self.decoder, [token, *self.fixed, *past, *self.cross_states])
        return logits[:, -1], [token, *present]

    def of_beams(self, feeds: list[Value], rows: Value) -> list[Value]:
        return [feeds[0], *(ops.gather(x, rows) for x in feeds[1:])]

    def following(self, feeds: list[Value], token: Value, sequences: Value) -> list[Value]:
        return [token if self.is_single_token else sequences, *feeds[1:]]


def has_hidden_states(decoder: Graph) -> bool:
    return any(value.name == "encoder_hidden_states" for value in decoder.all_inputs)


def repeated(
    step: DecoderStep, decoding: Decoding, state: list[Value], length: Any, max_length: Value, gives: int = 0
) -> list[Value]:
    """Run all steps, starting with ``length`` tokens; return the final state and the stacked outputs of the steps."""
    count = ops.reshape(ops.cast(max_length, to=DType.int64), []) - length
    before: list[Value] = []
    going_on: Value | None = None
    start: Any = 0
    if decoding.first is not None:
        going_on, *state = step(decoding.first, constant(0, DType.int64), state)
        state, before = state[: len(state) - gives], [ops.unsqueeze(x, [0]) for x in state[len(state) - gives :]]
        count, start = count - 1, 1

    def body(number: Value, _: Value, *values: Value) -> list[Value]:
        return step(decoding.decoded, number + start if start else number, values)

    formals = [("step", TensorType(DType.int64, ())), ("going_on", TensorType(DType.bool, ()))]
    formals += [(f"state_{k}", _of_any_length(value)) for k, value in enumerate(state)]
    found = list(ops.loop(count, going_on, *state, body=subgraph(body, formals, name="step")))
    stacked = found[len(state) :]
    if before:  # a loop without iterations cannot infer sizes
        shaped = [ops.reshape(b, [dim_of(b, 0), *dims(a)[1:]]) for a, b in zip(before, stacked, strict=True)]
        stacked = [ops.concat(a, b, axis=0) for a, b in zip(before, shaped, strict=True)]
    return [*found[: len(state)], *stacked]


def _of_any_length(value: Value) -> TensorType:
    """The type of a value that may grow: rows of tokens, or a state (..., heads, length, size)."""
    grows = {2: 1, 4: 2, 5: 3}.get(value.ndim)
    return TensorType(value.dtype, tuple(None if axis == grows else size for axis, size in enumerate(value.shape)))


def repeat_rows(x: Value, beams: Any) -> Value:
    """Repeat every row of ``x`` ``beams`` times."""
    if isinstance(beams, int) and beams == 1:
        return x
    sizes = dims(x)[1:]
    return ops.reshape(ops.expand(ops.unsqueeze(x, [1]), [1, beams, *[1] * len(sizes)]), [-1, *sizes])


def filled(sequences: Value, max_length: Value, pad: int) -> Value:
    """Sequences padded to ``max_length``."""
    missing = ops.reshape(ops.cast(max_length, to=DType.int64), []) - dim_of(sequences, 1)
    return ops.pad(sequences, [0, 0, 0, missing], constant(pad, DType.int32))


def all_of(flags: Value) -> Value:
    return ops.cast(ops.reduce_min(ops.cast(flags, to=DType.int32), keepdims=0), to=DType.bool)
