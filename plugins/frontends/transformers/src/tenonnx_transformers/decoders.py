"""Export of text decoders: a graph of one step, from tokens and states to logits and states."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence

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
    run_model,
    states_of,
)

#: Batch size, past tokens and new tokens of the examples. They differ, and none is 1, since tracing may specialize on
#: such sizes. None is the sum of the others, which would look like the total number of tokens.
_EXAMPLE = (2, 6, 3)

#: State tensors of a decoder, by layer and kind.
Held = Mapping[tuple[int, str], Tensor]

#: Batch size and length of two calls, which differ so that dynamic axes of states can be found.
_PROBES = ((2, 4), (3, 7))


def decoder_states(model: torch.nn.Module) -> list[State]:
    """Return the states of a decoder. Raises ``NotRepresentable`` if its cache has none."""
    pair = []
    for batch, length in _PROBES:
        given = token_inputs(model, torch.zeros(batch, length, dtype=torch.int64), torch.ones(batch, length))
        with torch.no_grad():
            pair.append(run_model(model, given, {})[1])
    result = [state for state in states_of(pair, _PROBES) if state.axes]  # tensors without dynamic axes count tokens
    if not result:
        raise NotRepresentable(
            f"{type(model).__name__} keeps no states in its cache", do="choose another task, such as feature-extraction"
        )
    return result


def is_recurrent(states: Sequence[State]) -> bool:
    """Whether a decoder has states that do not grow with the text."""
    return not all(PAST in state.axes.values() for state in states)


def decoder_parts(model: torch.nn.Module, states: list[State]) -> list[Part]:
    """Return the parts of a decoder: a single one for all calls, or one for the prompt and one for later tokens.

    Models with recurrent states often accept only single tokens after the prompt. Raises ``NotRepresentable``, with
    the layers of recurrent states, if continuing from the cache gives other logits than one call for the whole text.
    """
    if not is_recurrent(states) or can_continue(model, states, new=3):
        return [decoder_part(model, states)]
    for masked in (True, False):
        if can_continue(model, states, new=1, masked=masked):
            return [
                _prompt_part(model, states),
                decoder_part(model, states, "decoder_with_past_model", new=1, masked=masked),
            ]
    raise NotRepresentable(
        f"{type(model).__name__} cannot continue a text from its cache",
        given=", ".join(f"layer {state.layer}: {state.kind}" for state in states if PAST not in state.axes.values()),
        do="choose another task, such as --task feature-extraction",
    )


def can_continue(model: torch.nn.Module, states: list[State], new: int, masked: bool = True) -> bool:
    """Whether continuing a prompt by calls with ``new`` tokens gives the logits of one call for the whole text.

    If ``new`` is above 1, a prompt after empty states has to give equal logits, too.
    """
    cut, end = 5, 5 + 2 * new
    tokens = torch.arange(2 * end).reshape(2, -1) % 7
    ones = torch.ones_like(tokens)

    def call(begin: int, end: int, past: Held, masked: bool = True) -> tuple[Tensor, Held]:
        given = token_inputs(model, tokens[:, begin:end], ones[:, :end])
        given = given if masked else {name: each for name, each in given.items() if name != "attention_mask"}
        return run_model(model, given, past)

    pairs = []
    with torch.no_grad():
        whole, _ = call(0, end, {})
        _, past = call(0, cut, {})
        try:
            for at in range(cut, end, new):  # the second call reads states written by the first
                logits, past = call(at, at + new, past, masked)
                pairs.append((logits, whole[:, at : at + new]))
            if new > 1:
                logits, _ = call(0, cut, {(state.layer, state.kind): state.empty(2) for state in states})
                pairs.append((logits, whole[:, :cut]))
        except (RuntimeError, ValueError, IndexError):  # shapes do not match
            return False
    return all(a.shape == b.shape and torch.allclose(a, b, rtol=1e-3, atol=1e-3) for a, b in pairs)


def token_inputs(
    model: torch.nn.Module, tokens: Tensor, mask: Tensor, positions: Tensor | None = None
) -> dict[str, Tensor]:
    """Inputs of ``forward`` by name: tokens, and the attention mask and positions if it accepts them."""
    parameters = inspect.signature(model.forward).parameters
    result = {"input_ids": tokens}
    if "attention_mask" in parameters:
        result["attention_mask"] = mask.long()
    if "position_ids" in parameters:
        result["position_ids"] = positions_of(mask)[:, -tokens.shape[1] :] if positions is None else positions
    return result


def positions_of(mask: Tensor) -> Tensor:
    """Position of each token of a padding mask, not counting padding, as in ``generate``."""
    return (mask.long().cumsum(-1) - 1).masked_fill(mask == 0, 0)


def decoder_part(
    model: torch.nn.Module, states: list[State], name: str = "model", new: int = _EXAMPLE[2], masked: bool = True
) -> Part:
    """Return the part of a decoder step: from tokens and ``past_key_values.*`` to ``logits`` and ``present.*``.

    If ``new`` is 1, the graph takes one token at a time.
    """
    batch, past, _ = _EXAMPLE
    inputs = _example_inputs(model, new, past, masked)
    axes = {0: BATCH, 1: LENGTH} if new > 1 else {0: BATCH}
    dims: dict[str, Mapping[int, str]] = dict.fromkeys(inputs, axes)
    dims |= {"attention_mask": {0: BATCH, 1: TOTAL}} if "attention_mask" in inputs else {}
    dims |= {state.past: state.axes for state in states}
    generator = torch.Generator().manual_seed(0)
    examples = dict(inputs)
    for state in states:
        empty = state.empty(batch, past)
        examples[state.past] = torch.randn(empty.shape, generator=generator).to(state.dtype)

    def call(given: Mapping[str, Tensor]) -> list[Tensor]:
        past = {(state.layer, state.kind): given[state.past] for state in states}
        return _results(run_model(model, {key: given[key] for key in inputs}, past), states)

    return Part(name, model, call, examples, _outputs(states), dims)


def _prompt_part(model: torch.nn.Module, states: list[State]) -> Part:
    """Return the part of a decoder for the prompt: tokens, mask and positions to ``logits`` and ``present.*``."""
    inputs = _example_inputs(model, _EXAMPLE[1], 0)

    def call(given: Mapping[str, Tensor]) -> list[Tensor]:
        return _results(run_model(model, given, {}), states)

    dims: dict[str, Mapping[int, str]] = {key: {0: BATCH, 1: LENGTH} for key in inputs}
    return Part("decoder_model", model, call, inputs, _outputs(states), dims)


def _example_inputs(model: torch.nn.Module, new: int, past: int, masked: bool = True) -> dict[str, Tensor]:
    batch = _EXAMPLE[0]
    tokens = torch.arange(batch * new).reshape(batch, new) % 7
    found = token_inputs(model, tokens, torch.ones(batch, past + new))
    return {name: each for name, each in found.items() if masked or name != "attention_mask"}


def _results(found: tuple[Tensor, Held], states: list[State]) -> list[Tensor]:
    logits, after = found
    return [logits, *(after[state.layer, state.kind] for state in states)]


def _outputs(states: list[State]) -> list[str]:
    return ["logits", *(state.present for state in states)]
