"""Text generation with a decoder subgraph: greedy search, sampling and beam search."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tenonnx_standard as ops
from tenonnx.extend import (
    REQUIRED,
    Dim,
    DType,
    Graph,
    NotDifferentiable,
    Op,
    TensorType,
    Value,
    at_least,
    constant,
    dtypes,
    floats,
    holds,
    integers,
    op,
    shapes,
    static,
)
from tenonnx_contrib_ms.beams import Hypotheses, search
from tenonnx_contrib_ms.decoding import (
    Decoded,
    DecoderOnly,
    Decoding,
    EncoderDecoder,
    all_of,
    filled,
    has_hidden_states,
    repeated,
)
from tenonnx_contrib_ms.logits_processors import Rules, Timestamps
from tenonnx_standard.checking import dim_of

#: Values of model_type.
GPT2, T5, WHISPER = range(3)
#: Value of logits_processor for Whisper's timestamps.
TIMESTAMPS = 1


@op("GreedySearch", domain="com.microsoft")
def greedy_search(
    input_ids,
    max_length,
    min_length=None,
    repetition_penalty=None,
    vocab_mask=None,
    prefix_vocab_mask=None,
    attention_mask=None,
    *,
    decoder: Graph,
    decoder_start_token_id=-1,
    encoder: Graph | None = None,
    eos_token_id: int,
    init_decoder: Graph | None = None,
    model_type=0,
    no_repeat_ngram_size=0,
    pad_token_id: int,
    vocab_size=-1,
):
    """Append the most probable token to prompts until they are ``max_length`` long.

    The decoder is a GPT-2: inputs are tokens, positions, attention mask and past states; outputs are logits and present
    states. Sequences are padded after their end.
    """
    decoding = DecoderOnly(decoder, init_decoder, input_ids, attention_mask, pad_token_id, 1)
    rules = Rules(eos_token_id, no_repeat_ngram_size, min_length, repetition_penalty, vocab_mask, prefix_vocab_mask)

    def best(scores: Value, step: Value) -> list[Value]:
        return [ops.argmax(scores, axis=1, keepdims=0)]

    return _generate(decoding, rules, best, input_ids, max_length, pad_token_id)[0]


@op("Sampling", domain="com.microsoft")
def sampling(
    input_ids,
    max_length,
    min_length=None,
    repetition_penalty=None,
    vocab_mask=None,
    prefix_vocab_mask=None,
    attention_mask=None,
    presence_mask=None,
    seed=None,
    *,
    custom=0,
    decoder: Graph,
    decoder_start_token_id=-1,
    encoder: Graph | None = None,
    eos_token_id: int,
    filter_value=-1e20,
    init_decoder: Graph | None = None,
    min_tokens_to_keep=0,
    model_type=0,
    no_repeat_ngram_size=0,
    pad_token_id: int,
    presence_penalty=0.0,
    temperature=1.0,
    top_p=0.0,
    vocab_size=-1,
    _outputs=None,
):
    """Append a sampled token to prompts until they are ``max_length`` long.

    Tokens are sampled from the most probable ones, whose total probability is ``top_p``. The seed is used if it is
    constant. The second output is the filtered scores of the last step.

    onnxruntime does not return the latter on CPUs, and its kernel applies all penalties of ``presence_mask`` to the
    first token of the first prompt.
    """
    decoding = DecoderOnly(decoder, init_decoder, input_ids, attention_mask, pad_token_id, 1)
    presence = None if presence_mask is None else _all_on_the_first(presence_mask, presence_penalty)
    rules = Rules(
        eos_token_id,
        no_repeat_ngram_size,
        min_length,
        repetition_penalty,
        vocab_mask,
        prefix_vocab_mask,
        temperature,
        presence,
    )
    count = ops.reshape(ops.cast(max_length, to=DType.int64), [1]) - dim_of(input_ids, 1)
    contents = None if seed is None else static(seed)
    chances = ops.random_uniform_like(
        ops.expand(constant(0.0, DType.float32), ops.concat(count, [dim_of(input_ids, 0)], axis=0)),
        seed=None if contents is None else float(contents.reshape(-1)[0]),
    )

    def drawn(scores: Value, step: Value) -> list[Value]:
        scores = _filtered(scores, top_p, filter_value, min_tokens_to_keep, bool(custom))
        sums = ops.cumsum(ops.softmax(scores), 1)
        chance = ops.unsqueeze(ops.gather(chances, step), [1]) * sums[:, -1:]
        below = ops.cast(ops.less_or_equal(sums, chance), to=DType.int64)
        return [ops.minimum(ops.reduce_sum(below, [1], keepdims=0), dim_of(scores, 1) - 1), scores]

    sequences, scores = _generate(decoding, rules, drawn, input_ids, max_length, pad_token_id, gives=1)
    return (sequences, scores[-1])[:_outputs]


def _all_on_the_first(mask: Value, penalty: float) -> Value:
    """Zeros like ``mask`` with the sum of all penalties as first element, an error of onnxruntime's kernel."""
    total = ops.reduce_sum(ops.cast(mask, to=DType.float32)) * penalty
    first = [ops.equal(ops.range_(0, dim_of(mask, axis), 1), 0) for axis in (0, 1)]
    return ops.where(ops.unsqueeze(first[0], [1]) & first[1], total, 0.0)


def _filtered(scores: Value, top: float, value: float, least: int, custom: bool) -> Value:
    """``scores`` with ``value`` in place of all but the most probable tokens."""
    count = dim_of(scores, 1)
    ordered, places = ops.top_k(scores, ops.reshape(count, [1]), largest=int(custom))
    sums = ops.cumsum(ops.softmax(ordered), 1)
    rank = ops.range_(0, count, 1)
    if custom:  # drop a token if the more probable ones reach ``top``
        before = ops.concat(sums[:, :1] * 0.0, sums[:, :-1], axis=1)
        gone = ops.greater(before, top) & ops.greater(rank, 0)
    else:
        gone = (sums <= 1.0 - top) & (ops.less(rank, count - least) | ops.equal(rank, 0))
    kept = ops.where(gone, constant(value, DType.float32), ordered)
    return ops.scatter_elements(scores, places, kept, axis=1)


def _generate(
    decoding: Decoding,
    rules: Rules,
    chosen: Callable[[Value, Value], list[Value]],
    input_ids: Value,
    max_length: Value,
    pad: int,
    gives: int = 0,
) -> list[Value]:
    """Append a token ``chosen`` by its scores in each step; return the sequences and further outputs of ``chosen``."""
    never = ops.not_(ops.equal(input_ids[:, 0], input_ids[:, 0]))

    def step(decode: Callable[[list[Value]], Decoded], start: Any, state: Sequence[Value]) -> list[Value]:
        feeds, (sequences, done) = list(state[:-2]), state[-2:]
        logits, feeds = decode(feeds)
        best, *more = chosen(rules.process(logits, sequences, start), start)
        best = ops.cast(best, to=DType.int32)
        done = ops.or_(done, ops.equal(best, constant(rules.eos, DType.int32)))
        token = ops.unsqueeze(ops.where(done, constant(pad, DType.int32), best), [1])
        sequences = ops.concat(sequences, token, axis=1)
        return [ops.not_(all_of(done)), *decoding.following(feeds, token, sequences), sequences, done, *more]

    state = [*decoding.feeds, decoding.sequences, never]
    found = repeated(step, decoding, state, dim_of(input_ids, 1), max_length, gives)
    return [filled(found[len(state) - 2], max_length, pad), *found[len(state) :]]


@op("BeamSearch", domain="com.microsoft")
def beam_search(
    input_ids,
    max_length,
    min_length=None,
    num_beams=REQUIRED,
    num_return_sequences=REQUIRED,
    length_penalty=None,
    repetition_penalty=None,
    vocab_mask=None,
    prefix_vocab_mask=None,
    attention_mask=None,
    decoder_input_ids=None,
    logits_processor=None,
    *,
    decoder: Graph,
    decoder_start_token_id=-1,
    early_stopping=0,
    encoder: Graph | None = None,
    eos_token_id: int,
    init_decoder: Graph | None = None,
    model_type=0,
    no_repeat_ngram_size=0,
    pad_token_id: int,
    vocab_size=-1,
    _outputs=None,
):
    """The most probable continuations of prompts, by beam search with ``num_beams`` beams.

    A GPT-2 decoder (``model_type`` 0) is as in GreedySearch. T5 (1) and Whisper (2) also have an encoder, which reads
    ``input_ids``, and start with ``decoder_start_token_id`` or ``decoder_input_ids``. The score of a sequence is its
    log-probability divided by its length to the power ``length_penalty``. Outputs are (batch, returned, max_length)
    sequences, their scores, and the scores of all tokens at each step.
    """
    beams, returned = (ops.reshape(ops.cast(x, to=DType.int64), []) for x in (num_beams, num_return_sequences))
    if model_type == GPT2:
        decoding: Decoding = DecoderOnly(decoder, init_decoder, input_ids, attention_mask, pad_token_id, beams)
    else:
        start = _start_sequences(input_ids, decoder_input_ids, decoder_start_token_id)
        mask = _encoder_mask(input_ids, attention_mask, pad_token_id) if model_type == T5 else None
        given = [input_ids] if mask is None else [input_ids, mask]
        decoding = EncoderDecoder(encoder, decoder, given, mask, start, beams)
    rules = Rules(eos_token_id, no_repeat_ngram_size, min_length, repetition_penalty, vocab_mask, prefix_vocab_mask)
    book = Hypotheses(
        dim_of(input_ids, 0), beams, _factor(length_penalty), bool(early_stopping), pad_token_id, max_length
    )
    found = search(decoding, rules, book, returned, 3 if _outputs is None else _outputs)
    return found[:_outputs] if _outputs != 1 else found[0]


@op("WhisperBeamSearch", domain="com.microsoft")
def whisper_beam_search(
    input_ids,
    max_length,
    min_length=None,
    num_beams=REQUIRED,
    num_return_sequences=REQUIRED,
    length_penalty=None,
    repetition_penalty=None,
    vocab_mask=None,
    prefix_vocab_mask=None,
    attention_mask=None,
    decoder_input_ids=None,
    logits_processor=None,
    cross_qk_layer_head=None,
    extra_decoding_ids=None,
    temperature=None,
    *,
    beginning_timestamp_token_id=-1,
    decoder: Graph,
    decoder_output_cross_qk=0,
    decoder_start_token_id=-1,
    early_stopping=0,
    encoder: Graph | None = None,
    eos_token_id: int,
    init_decoder: Graph | None = None,
    model_type=2,
    no_repeat_ngram_size=0,
    no_speech_token_id=-1,
    no_timestamps_token_id=-1,
    pad_token_id: int,
    start_of_lm_token_id=-1,
    transcribe_token_id=-1,
    translate_token_id=-1,
    vocab_size=-1,
    _outputs=None,
):
    """BeamSearch for Whisper; ``logits_processor`` 1 applies its timestamp rules."""
    beams, returned = (ops.reshape(ops.cast(x, to=DType.int64), []) for x in (num_beams, num_return_sequences))
    start = _start_sequences(input_ids, decoder_input_ids, decoder_start_token_id)
    decoding = EncoderDecoder(encoder, decoder, [input_ids], None, start, beams)
    timed = None
    if logits_processor is not None and beginning_timestamp_token_id > 0:
        timed = Timestamps(
            ops.equal(ops.reshape(ops.cast(logits_processor, to=DType.int64), []), TIMESTAMPS),
            beginning_timestamp_token_id,
            eos_token_id,
            decoder_start_token_id,
            translate_token_id,
            transcribe_token_id,
            start_of_lm_token_id,
            no_timestamps_token_id,
        )
    rules = Rules(
        eos_token_id,
        no_repeat_ngram_size,
        min_length,
        repetition_penalty,
        vocab_mask,
        prefix_vocab_mask,
        1.0 if temperature is None else ops.reshape(temperature, []),
        None,
        timed,
    )
    book = Hypotheses(
        dim_of(input_ids, 0), beams, _factor(length_penalty), bool(early_stopping), pad_token_id, max_length
    )
    found = search(decoding, rules, book, returned, 3 if _outputs is None else _outputs)
    return found[:_outputs] if _outputs != 1 else found[0]


def _factor(penalty: Value | None) -> Value:
    return constant(1.0, DType.float32) if penalty is None else ops.reshape(penalty, [])


def _start_sequences(input_ids: Value, tokens: Value | None, start: int) -> Value:
    """Initial decoder sequences: ``tokens``, or one start token per prompt."""
    return ops.expand(constant(start, DType.int32), [dim_of(input_ids, 0), 1]) if tokens is None else tokens


def _encoder_mask(input_ids: Value, mask: Value | None, pad: int) -> Value:
    """Mask of the tokens visible to an encoder: all but the left padding."""
    if mask is not None:
        return mask
    tokens = ops.cast(ops.not_(ops.equal(input_ids, constant(pad, DType.int32))), to=DType.int32)
    return ops.minimum(ops.cumsum(tokens, 1), constant(1, DType.int32))


# ----- types: like those of the bodies, but without tracing loops and decoders ----------------------------------------


@greedy_search.type
@sampling.type
def sampling_type(
    input_ids: Value, max_length: Value, *others: Any, decoder: Graph, _outputs: int | None = 1, **attributes: Any
) -> tuple[TensorType, ...]:
    batch = input_ids.shape[0] if input_ids.rank else None
    return (TensorType(DType.int32, (batch, _number(max_length))), _scores(decoder, batch))[:_outputs]


@beam_search.type
@whisper_beam_search.type
def whisper_beam_search_type(
    input_ids: Value,
    max_length: Value,
    min_length: Any,
    num_beams: Value,
    num_return_sequences: Value,
    *others: Any,
    decoder: Graph,
    _outputs: int | None,
    **attributes: Any,
) -> tuple[TensorType, ...]:
    batch, returned = input_ids.shape[0] if input_ids.rank else None, _number(num_return_sequences)
    scores = _scores(decoder, None, batch, _number(num_beams))
    sequences = TensorType(DType.int32, (batch, returned, _number(max_length)))
    return (sequences, TensorType(scores.dtype, (batch, returned)), scores)[:_outputs]


def _scores(decoder: Graph, *sizes: Dim) -> TensorType:
    """Type of the scores of the vocabulary."""
    logits = decoder.outputs[0]
    return TensorType(logits.dtype, (*sizes, logits.shape[-1] if logits.rank else None))


def _number(value: Value) -> int | None:
    contents = static(value)
    return None if contents is None else int(contents.reshape(-1)[0])


# ----- requirements ---------------------------------------------------------------------------------------------------


def _hold_decoder(decoder: Graph, init_decoder: Any, model_type: int, encoder: Any) -> str | None:
    if model_type != GPT2:
        return None
    for graph in (decoder, init_decoder):
        if graph is None:
            continue
        states = len(graph.outputs) - 1
        if states < 1 or len(graph.all_inputs) != states + DecoderOnly.OTHERS:
            return (
                "a decoder does not take input_ids, position_ids, attention_mask and past states, "
                "or does not return logits and as many present states"
            )
        if any(value.rank != 5 for value in graph.all_inputs[DecoderOnly.OTHERS :]):
            return "past states of a decoder are not declared as [2, batch, heads, length, size]"
    return None


def _hold_gpt2(model_type: int, encoder: Any) -> str | None:
    if model_type != GPT2 or encoder is not None:
        return "model_type is not 0, or there is an encoder: onnxruntime supports only decoders here"
    return None


def _hold_encoder(
    decoder: Graph, model_type: int, encoder: Any, decoder_start_token_id: int, decoder_input_ids: Any
) -> str | None:
    if model_type not in (GPT2, T5, WHISPER):
        return "model_type is not 0, 1 or 2"
    if model_type == GPT2:
        return None
    if encoder is None:
        return "encoder is missing, with model_type 1 or 2"
    if decoder_start_token_id < 0 and decoder_input_ids is None:
        return "decoder_start_token_id and decoder_input_ids are missing"
    own = len(decoder.outputs) - 1
    others = 1 + (model_type == T5) + has_hidden_states(decoder)
    if own < 2 or own % 2 or len(decoder.all_inputs) != others + 2 * own or len(encoder.outputs) != 2 + 2 * own:
        return (
            "encoder and decoder do not fit: the encoder returns logits, hidden states, and states for the decoder and "
            "of its own; the decoder takes input_ids, the mask in T5, maybe encoder_hidden_states and all these "
            "states, and returns logits and its own states"
        )
    return None


def _hold_whisper(
    model_type: int, decoder_output_cross_qk: int, extra_decoding_ids: Any, cross_qk_layer_head: Any
) -> str | None:
    if model_type != WHISPER:
        return "model_type is not 2"
    if decoder_output_cross_qk or cross_qk_layer_head is not None or extra_decoding_ids is not None:
        return "onnxruntime implements decoder_output_cross_qk and extra_decoding_ids on GPUs only"
    return None


_COMMON = {
    "max_length": "|1",
    "min_length": "|1",
    "repetition_penalty": "|1",
    "vocab_mask": "vocabulary",
    "prefix_vocab_mask": "batch vocabulary",
}
_PROMPT = {"input_ids": "batch length", "attention_mask": "batch length"}
_BEAMS = {
    "num_beams": "|1",
    "num_return_sequences": "|1",
    "length_penalty": "|1",
    "decoder_input_ids": "batch _",
    "logits_processor": "|1",
}

_COMMON_HOLD = (
    at_least(batch=1),
    integers("max_length", "min_length", "vocab_mask", "prefix_vocab_mask"),
    dtypes(attention_mask="int32"),
    floats("repetition_penalty"),
    holds(_hold_decoder),
)
_BEAMS_HOLD = (
    *_COMMON_HOLD,
    integers("num_beams", "num_return_sequences", "logits_processor"),
    dtypes(decoder_input_ids="int32"),
    floats("length_penalty"),
    holds(_hold_encoder),
)

greedy_search.requires(shapes(**_COMMON, **_PROMPT), dtypes(input_ids="int32"), holds(_hold_gpt2), *_COMMON_HOLD)
sampling.requires(
    shapes(**_COMMON, **_PROMPT, presence_mask="batch vocabulary", seed="|1"),
    dtypes(input_ids="int32"),
    integers("presence_mask", "seed"),
    holds(_hold_gpt2),
    *_COMMON_HOLD,
)
beam_search.requires(
    shapes(input_ids="batch length|batch size length", attention_mask="batch length", **_COMMON, **_BEAMS),
    dtypes(input_ids="int32 float"),
    *_BEAMS_HOLD,
)
whisper_beam_search.requires(
    shapes(input_ids="batch size length", attention_mask="batch _", temperature="|1", **_COMMON, **_BEAMS),
    floats("input_ids", "temperature"),
    holds(_hold_whisper),
    *_BEAMS_HOLD,
)


# ----- gradients ------------------------------------------------------------------------------------------------------


def _without_gradient(op: Op) -> None:
    @op.vjp
    def made_vjp(*values, **attributes):
        raise NotDifferentiable(
            f"{op.title}: selected tokens have no gradient", do="differentiate the graph of its decoder"
        )


for _made in (greedy_search, sampling, beam_search, whisper_beam_search):
    _without_gradient(_made)
