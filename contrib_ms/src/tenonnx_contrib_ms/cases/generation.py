"""Cases of search ops with a small decoder."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

import tenonnx_standard as ops
from tenonnx.extend import DType, TensorType, constant, subgraph, symbolic
from tenonnx_contrib_ms.attention import attention
from tenonnx_contrib_ms.generation import beam_search, greedy_search, sampling
from tenonnx_testing import Gap, call, cases, tensors

VOCABULARY, WIDTH, HEADS = 9, 8, 2
END, PADDING = 8, 5


def decoder_of(draw):
    """Draw a small GPT-2 decoder: token and position embeddings, and one attention layer."""
    seed = draw(st.integers(0, 1000))
    random = np.random.default_rng(seed)
    sizes = {"tokens": (VOCABULARY, WIDTH), "places": (16, WIDTH), "weights": (WIDTH, 3 * WIDTH), "bias": (3 * WIDTH,)}
    tables = {name: random.normal(size=size).astype(np.float32) for name, size in sizes.items()}

    def decode(input_ids, position_ids, attention_mask, past):
        table = constant(tables["tokens"])
        x = ops.gather(table, input_ids) + ops.gather(constant(tables["places"]), position_ids)
        weights = constant(tables["weights"]), constant(tables["bias"])
        seen, present = attention(x, *weights, attention_mask, past, num_heads=HEADS, unidirectional=1)
        return ops.matmul(x + seen, ops.transpose(table, perm=[1, 0])), present

    rows, length, before, total = (symbolic.parse(name) for name in ("rows", "length", "before", "total"))
    tokens, mask = TensorType(DType.int32, (rows, length)), TensorType(DType.int32, (rows, total))
    past = TensorType(DType.float32, (2, rows, HEADS, before, WIDTH // HEADS))
    formals = [("input_ids", tokens), ("position_ids", tokens), ("attention_mask", mask), ("past_0", past)]
    graph = subgraph(decode, formals, name="decoder")
    for name, value in zip(("logits", "present_0"), graph.outputs, strict=True):
        graph.rename(value, name)
    return graph


def masks_of(draw, batch, length):
    """Draw masks of the vocabulary, the first step and attention, each optional."""
    if draw(st.booleans()):
        return [None, None, None]
    tokens = np.arange(VOCABULARY)
    mask = np.where(tokens % 4 == draw(st.integers(0, 2)), 0, 1).astype(np.int32)
    first = np.where((tokens + np.arange(batch)[:, None]) % 3 == 0, 0, 1).astype(np.int32)
    return [mask, first, np.ones((batch, length), np.int32)]


def search(draw):
    """Draw the inputs up to the masks, and attributes; callers insert those before the repetition penalty."""
    batch, length = draw(st.integers(1, 2)), draw(st.integers(1, 2))
    ids = draw(tensors("int32", shape=(batch, length), min_value=0, max_value=VOCABULARY - 1))
    most = np.array([length + draw(st.integers(1, 3))], np.int32)
    least = np.array([draw(st.integers(1, 4))], np.int32)
    penalty = np.array([draw(st.sampled_from([1.0, 1.3]))], np.float32)
    masks = masks_of(draw, batch, length)
    attributes = {"decoder": decoder_of(draw), "eos_token_id": END, "pad_token_id": PADDING}
    attributes |= draw(st.sampled_from([{}, {"no_repeat_ngram_size": 2}, {"vocab_size": VOCABULARY}]))
    if draw(st.booleans()):
        attributes["init_decoder"] = decoder_of(draw)
    return ids, most, least, penalty, masks, attributes


#: Gap: some requirements cannot be violated by changing a call.
OTHER_DECODERS = Gap("requirements", "it needs another kind of decoder, which cannot be made by changing a call")


@cases(greedy_search, gradient=False, gaps=[OTHER_DECODERS])
def greedy_search_cases(draw):
    """Without end tokens: once all sequences have ended, onnxruntime leaves uninitialized memory after them."""
    ids, most, _, penalty, masks, attributes = search(draw)
    return call(ids, most, most, penalty, *masks, **attributes)


@cases(sampling, gradient=False, gaps=[OTHER_DECODERS])
def sampling_cases(draw):
    """Scores that leave a single possible token; tests/test_generation.py checks probabilities."""
    ids, most, _, penalty, masks, attributes = search(draw)
    attributes |= {"top_p": 1e-3, "custom": draw(st.integers(0, 1)), "filter_value": -1e10}
    attributes |= {"min_tokens_to_keep": 1, "temperature": draw(st.sampled_from([1.0, 0.5]))}
    more = [None, None]
    if draw(st.booleans()):
        more = [draw(tensors("int32", shape=(len(ids), VOCABULARY), min_value=0, max_value=1)), np.int32([7])]
        attributes["presence_penalty"] = 2.0
    return call(ids, most, most, penalty, *masks, *more, **attributes, _outputs=1)


@cases(beam_search, gradient=False)
def beam_search_cases(draw):
    ids, most, least, penalty, masks, attributes = search(draw)
    beams = draw(st.integers(1, 3))
    counts = np.array([beams], np.int32), np.array([draw(st.integers(1, beams))], np.int32)
    factor = np.array([draw(st.sampled_from([1.0, 0.7]))], np.float32)
    attributes["early_stopping"] = draw(st.integers(0, 1))
    return call(
        ids, most, least, *counts, factor, penalty, *masks, **attributes, _outputs=draw(st.sampled_from([1, 2]))
    )
