"""Export of encoder-decoder models: the encoder, the first step of the decoder, and later steps with states."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import torch
from torch import Tensor
from transformers import cache_utils

from tenonnx_transformers.calls import inputs_for
from tenonnx_transformers.parts import Part
from tenonnx_transformers.sources import Source
from tenonnx_transformers.states import BATCH, LENGTH, State, cache_parameter, fill, new_cache, states_of, tensors_of

#: Name of the dynamic dim for the encoder's sequence length in decoder graphs.
SOURCE = "encoder_sequence_length"

#: Name of the encoder's mask in decoder graphs.
MASK = "encoder_attention_mask"

#: Batch size, encoder length and decoder length of two calls, which differ so that dynamic axes can be found.
_PROBES = ((2, 6, 4), (3, 9, 7))


class Parts(NamedTuple):
    """The three parts of a model, and the ``states`` of its decoder: first self-attention, then cross-attention."""

    encoder: Part
    first: Part
    step: Part
    states: Sequence[State]


def encoder_decoder_parts(source: Source) -> Parts:
    """Return the parts of a model. Raises ``NotRepresentable`` if it takes no cache."""
    model: Any = source.model
    batch, length, new = _PROBES[0]
    inputs = inputs_for(source, batch, length)
    masked = "attention_mask" in inputs
    states = _states(source)
    with torch.no_grad():
        encoded = _encoded(model, inputs)
    kind: Any = type(encoded)  # models read fields of their own class
    hidden: Tensor = encoded.last_hidden_state
    seen: Tensor | None = getattr(encoded, "attention_mask", None)  # the mask of frames, made by some speech encoders
    seen = seen if masked else None

    def encode(given: Mapping[str, Tensor]) -> list[Tensor]:
        found = _encoded(model, given)
        return [found.last_hidden_state] if seen is None else [found.last_hidden_state, found.attention_mask]

    other = inputs_for(source, *_PROBES[1][:2])
    with torch.no_grad():
        longer = encode(other)[0]
    grows = hidden.shape[1] != longer.shape[1]
    source_dims = {0: BATCH, 1: SOURCE} if grows else {0: BATCH}
    length_name = SOURCE if hidden.shape[1] == length else "num_samples"  # convolutions shorten sound
    input_dims: dict[str, Mapping[int, str]] = {
        name: {0: BATCH, 1: length_name} if tensor.shape[1] != other[name].shape[1] else {0: BATCH}
        for name, tensor in inputs.items()
    }
    computed = ["last_hidden_state", *([MASK] if seen is not None else [])]
    encoder = Part("encoder_model", model, encode, inputs, computed, input_dims)

    mask = {MASK: inputs["attention_mask"] if seen is None else seen} if masked else {}
    tokens = {"input_ids": torch.arange(batch * new).reshape(batch, new) % 7}
    dims: dict[str, Mapping[int, str]] = {
        MASK: input_dims.get("attention_mask", {}) if seen is None else source_dims,
        "input_ids": {0: BATCH, 1: LENGTH},
        "encoder_hidden_states": source_dims,
        **{state.past: state.axes for state in states},
    }

    def decode(given: Mapping[str, Tensor], cache: Any, encoded: Tensor) -> list[Tensor]:
        mask = {"attention_mask": given[MASK]} if masked else {}
        found = model(
            encoder_outputs=kind(last_hidden_state=encoded, **(mask if seen is not None else {})),
            decoder_input_ids=given["input_ids"],
            use_cache=True,
            **mask,
            **{cache_parameter(model): cache},
        )
        return [found.logits, *_tensors(cache, states)]

    def first(given: Mapping[str, Tensor]) -> list[Tensor]:
        return decode(given, _new_cache(model), given["encoder_hidden_states"])

    def step(given: Mapping[str, Tensor]) -> list[Tensor]:
        cache = _new_cache(model)
        for part, part_states in zip(
            (cache.self_attention_cache, cache.cross_attention_cache), _split_states(states), strict=True
        ):
            fill(part, {(state.layer, state.kind.partition(".")[2]): given[state.past] for state in part_states})
        cache.is_updated = dict.fromkeys(range(len(cache.cross_attention_cache)), True)
        key = given[next(state.past for state in states if state.kind == "encoder.key")]
        encoded = key.new_zeros(key.shape[0], key.shape[2], hidden.shape[2])  # only its shape is read
        return decode(given, cache, encoded)[: 1 + len(own)]

    own, _ = _split_states(states)
    presents = [state.present for state in states]
    begin = Part(
        "decoder_model", model, first, {**mask, **tokens, "encoder_hidden_states": hidden}, ["logits", *presents], dims
    )
    with torch.no_grad():
        _, *state_tensors = first(begin.examples)
    past = {state.past: tensor for state, tensor in zip(states, state_tensors, strict=True)}
    examples = {**mask, "input_ids": tokens["input_ids"][:, :3], **past}
    outputs = ["logits", *(state.present for state in own)]
    return Parts(encoder, begin, Part("decoder_with_past_model", model, step, examples, outputs, dims), states)


def _encoded(model: Any, given: Mapping[str, Tensor]) -> Any:
    """Run the encoder without a cache, which some encoders reject."""
    encoder = model.get_encoder()
    known = inspect.signature(encoder.forward).parameters
    return encoder(**given, return_dict=True, **({"use_cache": False} if "use_cache" in known else {}))


def _new_cache(model: Any) -> Any:
    caches = [new_cache(model.config) for _ in range(2)]
    return cache_utils.EncoderDecoderCache(*caches)


def _states(source: Source) -> list[State]:
    model: Any = source.model
    caches, sizes = [], []
    for batch, length, new in _PROBES:
        inputs, cache = inputs_for(source, batch, length), _new_cache(model)
        with torch.no_grad():
            encoded = _encoded(model, inputs)
            model(
                **inputs,
                decoder_input_ids=torch.zeros(batch, new, dtype=torch.int64),
                use_cache=True,
                **{cache_parameter(model): cache},
            )
        caches.append(cache)
        sizes.append((batch, new, encoded.last_hidden_state.shape[1]))
    own = states_of([tensors_of(each.self_attention_cache) for each in caches], [each[:2] for each in sizes])
    other = states_of(
        [tensors_of(each.cross_attention_cache) for each in caches],
        [(each[0], each[2]) for each in sizes],
        (BATCH, SOURCE),
    )
    return [
        *(replace(state, kind=f"decoder.{state.kind}") for state in own),
        *(replace(state, kind=f"encoder.{state.kind}") for state in other),
    ]


def _split_states(states: Sequence[State]) -> tuple[list[State], list[State]]:
    """Split states into those of self-attention and those of cross-attention."""
    own = [state for state in states if state.kind.startswith("decoder.")]
    return own, [state for state in states if state not in own]


def _tensors(cache: Any, states: Sequence[State]) -> list[Tensor]:
    found = {
        (layer, f"{name}.{kind}"): tensor
        for name, part in (("decoder", cache.self_attention_cache), ("encoder", cache.cross_attention_cache))
        for (layer, kind), tensor in tensors_of(part).items()
    }
    return [found[state.layer, state.kind] for state in states]


def start_tokens(model: Any, batch: int) -> Tensor:
    """Start tokens of the decoder, int64 of shape (batch, 1)."""
    places = model.generation_config, model.config
    names = ("decoder_start_token_id", "bos_token_id")
    given = next((found for name in names for each in places if (found := getattr(each, name, None)) is not None), 0)
    return torch.full((batch, 1), int(given))
