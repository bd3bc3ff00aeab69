"""Cases of beam search with an encoder and a decoder, like T5 and Whisper."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from hypothesis import strategies as st

import tenonnx_standard as ops
from tenonnx.extend import DType, Graph, TensorType, constant, subgraph, symbolic
from tenonnx_contrib_ms.cases.generation import END, HEADS, OTHER_DECODERS, PADDING, VOCABULARY, WIDTH, masks_of
from tenonnx_contrib_ms.generation import T5, WHISPER, beam_search, whisper_beam_search
from tenonnx_testing import Gap, call, cases, tensors

SIZE, FEATURES = WIDTH // HEADS, 2


class Model:
    """One layer of self and cross attention with random weights."""

    def __init__(self, seed: int, read: int, one: bool) -> None:
        random = np.random.default_rng(seed)
        self.model_type, self.is_single_token = read, one
        shapes = dict.fromkeys(("q", "k", "v", "across", "cross_k", "cross_v"), (WIDTH, WIDTH))
        shapes |= {"tokens": (VOCABULARY, WIDTH), "features": (FEATURES, WIDTH), "out": (WIDTH, VOCABULARY)}
        self.weights = {name: random.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}

    def weight(self, name: str) -> Any:
        return constant(self.weights[name])

    def heads(self, x: Any, name: str) -> Any:
        return ops.transpose(ops.reshape(ops.matmul(x, self.weight(name)), [0, 0, HEADS, SIZE]), perm=[0, 2, 1, 3])

    def attended(self, q: Any, k: Any, v: Any, mask: Any = None) -> Any:
        scores = ops.matmul(q, ops.transpose(k, perm=[0, 1, 3, 2])) / math.sqrt(SIZE)
        if mask is not None:
            hidden = ops.equal(ops.reshape(mask, [0, 1, 1, -1]), 0)
            scores = ops.where(hidden, constant(-1e4, DType.float32), scores)
        y = ops.transpose(ops.matmul(ops.softmax(scores), v), perm=[0, 2, 1, 3])
        return ops.reshape(y, [0, 0, WIDTH])

    def decoded(self, tokens: Any, past: Any, behind: Any, mask: Any) -> list[Any]:
        """Return the logits of each token and the decoder's states. Uses only ops that every opset has."""
        x = ops.gather(self.weight("tokens"), tokens)
        k, v = self.heads(x, "k"), self.heads(x, "v")
        if past and self.is_single_token:
            k, v = ops.concat(past[0], k, axis=2), ops.concat(past[1], v, axis=2)
        x = x + self.attended(self.heads(x, "q"), k, v)
        x = x + self.attended(self.heads(x, "across"), *behind, mask=mask)
        return [ops.matmul(x, self.weight("out")), k, v]

    def encoder(self) -> Graph:
        def encode(*given: Any) -> Any:
            read, mask, tokens = given if self.model_type == T5 else (given[0], None, given[1])
            if self.model_type == T5:
                hidden = ops.gather(self.weight("tokens"), read)
            else:
                hidden = ops.matmul(ops.transpose(read, perm=[0, 2, 1]), self.weight("features"))
            behind = self.heads(hidden, "cross_k"), self.heads(hidden, "cross_v")
            logits, *states = self.decoded(tokens, None, behind, mask)
            return (logits, hidden, *states, *behind)

        tokens = TensorType(DType.int32, _named("rows", "read"))
        begun = ("decoder_input_ids", TensorType(DType.int32, _named("rows", "written")))
        if self.model_type == T5:
            formals = [("encoder_input_ids", tokens), ("encoder_attention_mask", tokens), begun]
        else:
            formals = [("encoder_input_ids", TensorType(DType.float32, _named("rows", FEATURES, "read"))), begun]
        own = ["present_key_self_0", "present_value_self_0", "present_key_cross_0", "present_value_cross_0"]
        return _renamed(subgraph(encode, formals, name="encoder"), ["logits", "encoder_hidden_states", *own])

    def decoder(self, hidden: bool) -> Graph:
        def decode(tokens: Any, *given: Any) -> Any:
            mask = given[0] if self.model_type == T5 else None
            return tuple(self.decoded(tokens, given[-4:-2], given[-2:], mask))

        formals = [("input_ids", TensorType(DType.int32, _named("rows", 1 if self.is_single_token else "written")))]
        if self.model_type == T5:
            formals.append(("encoder_attention_mask", TensorType(DType.int32, _named("rows", "read"))))
        if hidden:
            formals.append(("encoder_hidden_states", TensorType(DType.float32, _named("rows", "read", WIDTH))))
        for kind, length in (("self", "before"), ("cross", "read")):
            state = TensorType(DType.float32, _named("rows", HEADS, length, SIZE))
            formals += [(f"past_{part}_{kind}_0", state) for part in ("key", "value")]
        graph = subgraph(decode, formals, name="decoder")
        return _renamed(graph, ["logits", "present_key_self_0", "present_value_self_0"])


def _named(*sizes: str | int) -> tuple[Any, ...]:
    return tuple(symbolic.parse(size) if isinstance(size, str) else size for size in sizes)


def _renamed(graph: Graph, names: list[str]) -> Graph:
    for name, value in zip(names, graph.outputs, strict=True):
        graph.rename(value, name)
    return graph


def _search(draw: Any, read: int) -> tuple[list[Any], dict[str, Any]]:
    """Draw the inputs up to the masks, and attributes."""
    batch, length = draw(st.integers(1, 2)), draw(st.integers(1, 2))
    model = Model(draw(st.integers(0, 1000)), read, draw(st.booleans()))
    if read == T5:
        given = draw(tensors("int32", shape=(batch, length), min_value=0, max_value=VOCABULARY - 1))
    else:
        given = draw(tensors(shape=(batch, FEATURES, length), min_value=-1, max_value=1))
    begun = None
    if read == WHISPER and draw(st.booleans()):
        begun = draw(tensors("int32", shape=(batch, draw(st.integers(1, 2))), min_value=0, max_value=VOCABULARY - 1))
    beams = draw(st.integers(1, 3))
    most = (1 if begun is None else begun.shape[1]) + draw(st.integers(2, 4))
    numbers = [[most], [draw(st.integers(0, 4))], [beams], [draw(st.integers(1, beams))]]
    factors = [[draw(st.sampled_from([1.0, 0.7]))], [draw(st.sampled_from([1.0, 1.3]))]]
    vocab_mask, first_mask, _ = masks_of(draw, batch, 1)
    mask = np.ones((batch, length), np.int32) if read == T5 and draw(st.booleans()) else None
    inputs = [given, *(np.array(n, np.int32) for n in numbers), *(np.array(f, np.float32) for f in factors)]
    attributes: dict[str, Any] = {"encoder": model.encoder(), "decoder": model.decoder(draw(st.booleans()))}
    attributes |= {"eos_token_id": END, "pad_token_id": PADDING, "decoder_start_token_id": draw(st.integers(0, 7))}
    attributes |= {"model_type": read, "early_stopping": draw(st.integers(0, 1))}
    attributes |= draw(st.sampled_from([{}, {"no_repeat_ngram_size": 2}, {"vocab_size": VOCABULARY}]))
    return [*inputs, vocab_mask, first_mask, mask, begun], attributes


@cases(beam_search, gradient=False)
def beam_search_cases(draw):
    inputs, attributes = _search(draw, draw(st.sampled_from([T5, WHISPER])))
    return call(*inputs, **attributes, _outputs=draw(st.sampled_from([1, 2])))


OF_GPUS = Gap("outputs", "onnxruntime returns the products of queries and keys, and no_speech, only on GPUs")


@cases(whisper_beam_search, gradient=False, gaps=[OTHER_DECODERS, OF_GPUS])
def whisper_beam_search_cases(draw):
    inputs, attributes = _search(draw, WHISPER)
    timed, temperature = None, None
    if draw(st.booleans()):
        timed = np.array([1], np.int32)
        attributes |= {"beginning_timestamp_token_id": 6, "no_timestamps_token_id": 5}
        attributes |= {"start_of_lm_token_id": 4, "transcribe_token_id": 3, "translate_token_id": 2}
    if draw(st.booleans()):
        temperature = np.array([draw(st.sampled_from([1.0, 0.5]))], np.float32)
    return call(*inputs, timed, None, None, temperature, **attributes, _outputs=draw(st.sampled_from([1, 2])))
