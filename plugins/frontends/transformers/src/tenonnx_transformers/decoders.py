"""Decoders that generate text: one graph of a step, from tokens and states to logits and states."""

from __future__ import annotations

import inspect
from collections.abc import Mapping

import torch
from torch import Tensor

from tenonnx.extend import NotRepresentable
from tenonnx_transformers.parts import Part
from tenonnx_transformers.states import (
    BATCH,
    LENGTH,
    PAST,
    TOTAL,
    State,
    cache_parameter,
    fill,
    new_cache,
    states_of,
    tensors_of,
)

#: Batch, past and new tokens of the examples, all different and none 1: those are sizes that tracing may fix.
_EXAMPLE = (2, 5, 3)

#: Batch and length of two calls that show which axes of the states vary.
_PROBES = ((2, 4), (3, 7))


def decoder_states(model: torch.nn.Module) -> list[State]:
    """States that a decoder keeps. Raises ``NotRepresentable`` where it returns none."""
    cache_name = cache_parameter(model)
    caches = []
    for batch, length in _PROBES:
        cache = new_cache(model.config)
        given = token_inputs(model, torch.zeros(batch, length, dtype=torch.int64), torch.ones(batch, length))
        with torch.no_grad():
            model(**given, **{cache_name: cache}, use_cache=True)
        caches.append(cache)
    found = states_of(caches, _PROBES)
    if not found:
        raise NotRepresentable(
            f"{type(model).__name__} keeps no states in its cache", do="choose another task, such as feature-extraction"
        )
    if not any(PAST in state.axes.values() for state in found):
        raise NotRepresentable(
            f"{type(model).__name__} keeps recurrent states alone; their loops over the length are not exported yet",
            given=", ".join(f"layer {state.layer}: {state.kind}" for state in found[:2]),
        )
    return found


def token_inputs(
    model: torch.nn.Module, tokens: Tensor, mask: Tensor, positions: Tensor | None = None
) -> dict[str, Tensor]:
    """Inputs of ``forward`` for tokens, of those that it takes: the tokens, the mask and positions."""
    known = inspect.signature(model.forward).parameters
    found = {"input_ids": tokens}
    if "attention_mask" in known:
        found["attention_mask"] = mask.long()
    if "position_ids" in known:
        found["position_ids"] = positions_of(mask)[:, -tokens.shape[1] :] if positions is None else positions
    return found


def positions_of(mask: Tensor) -> Tensor:
    """The position of each token of a mask of padding, counted without padding, as ``generate`` counts it."""
    return (mask.long().cumsum(-1) - 1).masked_fill(mask == 0, 0)


def decoder_part(model: torch.nn.Module, states: list[State], name: str = "model") -> Part:
    """The part of a decoder: tokens, mask, positions and ``past_key_values.*`` to ``logits`` and ``present.*``."""
    batch, past, new = _EXAMPLE
    cache_name = cache_parameter(model)
    tokens = torch.arange(batch * new).reshape(batch, new) % 7
    inputs = token_inputs(model, tokens, torch.ones(batch, past + new))
    dims: dict[str, Mapping[int, str]] = {key: {0: BATCH, 1: LENGTH} for key in inputs}
    dims |= {"attention_mask": {0: BATCH, 1: TOTAL}} if "attention_mask" in inputs else {}
    dims |= {state.past: state.axes for state in states}
    generator = torch.Generator().manual_seed(0)
    examples = dict(inputs)
    for state in states:
        empty = state.empty(batch, past)
        examples[state.past] = torch.randn(empty.shape, generator=generator).to(state.dtype)

    def call(given: Mapping[str, Tensor]) -> list[Tensor]:
        cache = new_cache(model.config)
        fill(cache, {(state.layer, state.kind): given[state.past] for state in states})
        found = model(**{key: given[key] for key in inputs}, **{cache_name: cache}, use_cache=True)
        after = tensors_of(cache)
        return [found.logits, *(after[state.layer, state.kind] for state in states)]

    outputs = ["logits", *(state.present for state in states)]
    return Part(name, model, call, examples, outputs, dims)
