"""Export of decoders with a cache of fixed length: graphs for prompts and for single tokens."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from tenonnx.extend import InvalidCall, NotRepresentable
from tenonnx_transformers.decoders import can_continue, token_inputs
from tenonnx_transformers.own_states import has_own_cache
from tenonnx_transformers.parts import Part
from tenonnx_transformers.states import BATCH, LENGTH, PAST, POSITIONS, State, run_model
from tenonnx_transformers.verification import CALLS, Decoder

#: Kinds of states that can have a fixed length.
_KINDS = ("key", "value", "indexer_key")

#: Minimum length of a cache: the longest text on which logits are compared, and two generated tokens.
_LEAST = 2 + max(len(rows[0]) for rows, _ in CALLS)

#: Batch size, past tokens and new tokens of the examples.
_BATCH, _PAST, _NEW = 2, 6, 3


@dataclass(frozen=True)
class StaticCache:
    """A cache of ``length`` tokens. With ``prefill``, prompts are chunks of so many tokens in batches of 1."""

    length: int
    prefill: int | None = None

    @classmethod
    def of(cls, text: str) -> StaticCache:
        """Parse ``static=2048`` or ``static=2048,prefill=128``. Raises ``InvalidCall`` for another text."""
        parsed = re.fullmatch(r"static=(\d{1,9})(?:,prefill=(\d{1,9}))?", text) if isinstance(text, str) else None
        if parsed is None:
            raise InvalidCall(
                "unknown cache", given=repr(text)[:80], available="static=LENGTH, static=LENGTH,prefill=TOKENS"
            )
        length, prefill = int(parsed[1]), None if parsed[2] is None else int(parsed[2])
        if length < _LEAST or (prefill is not None and not 1 < prefill <= length):
            raise InvalidCall(
                "the length of a static cache or of its prompts is out of range",
                given=text,
                available=f"lengths of {_LEAST} tokens or more, prompts of 2 tokens up to the length",
            )
        return cls(length, prefill)


def _static_states(model: torch.nn.Module, states: Sequence[State], cache: StaticCache) -> list[State]:
    """Return the states of a decoder at a fixed length.

    Raises ``NotRepresentable``, with the layer, for states that cannot have one, and for a length above the number of
    positions of the model.
    """
    name = type(model).__name__
    growing = [state for state in states if PAST in state.axes.values()]
    if not growing:
        raise NotRepresentable(
            f"no state of {name} grows with the text, so that its cache has no length", do="leave out the cache"
        )
    wrong = next((state for state in growing if state.kind not in _KINDS), None)
    if wrong is not None or has_own_cache(model):
        state = wrong or growing[0]
        raise NotRepresentable(
            f"the cache of {name} cannot be static: it is of the model's own class",
            given=f"layer {state.layer}: {state.kind}",
            do="leave out the cache",
        )
    config: Any = model.config
    positions = getattr(config.get_text_config(decoder=True), "max_position_embeddings", None)
    if isinstance(positions, int) and cache.length > positions:
        raise NotRepresentable(
            f"the static cache is longer than the context of {name}", given=f"{cache.length}, of at most {positions}"
        )
    return [_at_length(state, cache.length) for state in states]


def _at_length(state: State, length: int) -> State:
    shape = [length if state.axes.get(axis) == PAST else size for axis, size in enumerate(state.shape)]
    return replace(state, axes={axis: dim for axis, dim in state.axes.items() if dim != PAST}, shape=tuple(shape))


def static_parts(model: torch.nn.Module, states: Sequence[State], cache: StaticCache) -> tuple[list[Part], list[State]]:
    """Return the graphs ``prefill_model``, of several tokens, and ``decode_model``, of one, and states of fixed length.

    ``prefill_model`` takes no recurrent states if the model cannot continue these by several tokens. Raises
    ``NotRepresentable`` if the model gives other logits with a cache of fixed length.
    """
    fixed = _static_states(model, states, cache)
    recurrent = [state for state in states if PAST not in state.axes.values()]
    if cache.prefill is not None and recurrent:
        raise NotRepresentable(
            "prompts of a fixed length end with padding, which recurrent states count as tokens",
            given=f"layer {recurrent[0].layer} of {type(model).__name__}: {recurrent[0].kind}",
            do=f"leave out the length of prompts: static={cache.length}",
        )
    continues = not recurrent or can_continue(model, list(states), new=3)
    first = fixed if continues else [state for state in fixed if state.kind in _KINDS]
    if (reason := _difference(model, fixed, first, cache.length)) is not None:
        raise NotRepresentable(
            f"{type(model).__name__} does not support a cache of fixed length",
            given=reason,
            do="leave out the cache, which then grows with the text",
        )
    new = _NEW if cache.prefill is None else cache.prefill
    parts = [
        _part(model, fixed, first, "prefill_model", new, cache),
        _part(model, fixed, fixed, "decode_model", 1, cache),
    ]
    return parts, fixed


def _inputs(model: torch.nn.Module, tokens: Tensor, past: int, length: int) -> dict[str, Tensor]:
    """Inputs of one call after ``past`` tokens, without padding."""
    batch, new = tokens.shape
    mask = torch.zeros(batch, length, dtype=torch.int64)
    mask[:, : past + new] = 1
    places = torch.arange(past, past + new)
    return {**token_inputs(model, tokens, mask, places.expand(batch, -1)), POSITIONS: places}


def _difference(model: torch.nn.Module, states: Sequence[State], first: Sequence[State], length: int) -> str | None:
    """Compare calls with a static cache with one for the whole text; None if their logits are equal.

    The first call has only the states ``first``. Unless these are all, each later call is of one token.
    """
    tokens = torch.arange(2 * 9).reshape(2, -1) % 7
    past = {(state.layer, state.kind): state.empty(2) for state in first}
    calls = ((0, 5), (5, 6), (6, 9)) if len(first) == len(states) else ((0, 5), (5, 6), (6, 7))
    with torch.no_grad():
        whole = model(**token_inputs(model, tokens, torch.ones_like(tokens)), use_cache=False).logits
        for begin, end in calls:
            try:
                logits, after = run_model(model, _inputs(model, tokens[:, begin:end], begin, length), past)
                past = {(state.layer, state.kind): after[state.layer, state.kind] for state in states}
            except (RuntimeError, ValueError, IndexError, TypeError, AttributeError, KeyError) as error:
                return (str(error).strip().splitlines() or [type(error).__name__])[0][:200]
            if any(past[state.layer, state.kind].shape != state.empty(2).shape for state in states):
                return "a state changes its size"
            if not torch.allclose(logits, whole[:, begin:end], rtol=1e-3, atol=1e-3):
                return f"other logits after {begin} tokens"
    return None


def _part(
    model: torch.nn.Module,
    states: Sequence[State],
    taken: Sequence[State],
    name: str,
    new: int,
    cache: StaticCache,
) -> Part:
    """Return the part of a call of ``new`` tokens, which takes the states ``taken`` and computes all."""
    batch = _BATCH if cache.prefill is None else 1
    past = min(_PAST, cache.length - new) if len(taken) == len(states) else 0
    tokens = torch.arange(batch * new).reshape(batch, new) % 7
    inputs = _inputs(model, tokens, past, cache.length)
    generator = torch.Generator().manual_seed(0)
    examples = dict(inputs)
    for state in taken:
        examples[state.past] = torch.randn(state.empty(batch).shape, generator=generator).to(state.dtype)
    dims: dict[str, Mapping[int, str]] = {}
    if cache.prefill is None:
        dims = {key: {0: BATCH} if new == 1 else {0: BATCH, 1: LENGTH} for key in inputs}
        dims |= {"attention_mask": {0: BATCH}, POSITIONS: {} if new == 1 else {0: LENGTH}}
        dims |= {state.past: state.axes for state in taken}

    def call(given: Mapping[str, Tensor]) -> list[Tensor]:
        before = {(state.layer, state.kind): given[state.past] for state in taken}
        logits, after = run_model(model, {key: given[key] for key in inputs}, before)
        return [logits, *(after[state.layer, state.kind] for state in states)]

    return Part(name, model, call, examples, ["logits", *(state.present for state in states)], dims)


@dataclass(frozen=True)
class StaticDecoder(Decoder):
    """The sessions of a prompt and of a single token, called like those of a cache that grows."""

    cache: StaticCache = StaticCache(_LEAST)

    @property
    def limit(self) -> int:
        return self.cache.length

    def lengths(self, news: Sequence[int], batch: int) -> Sequence[int]:
        """Numbers of new tokens in successive calls: one after others if prompts take no recurrent states."""
        begin, step = ({name for name in run.inputs if name.startswith("past_")} for run in self.runs)
        return news if begin == step else (news[0], *[1] * sum(news[1:]))

    def __call__(self, feeds: Mapping[str, Any]) -> Sequence[Any]:
        """Run a call, in chunks and text by text where the graphs have fixed sizes."""
        if self.cache.prefill is None:
            return self._run(feeds)
        count = len(feeds["input_ids"])
        rows = [self._chunks({name: x[row : row + 1] for name, x in feeds.items()}) for row in range(count)]
        return [np.concatenate(each) for each in zip(*rows, strict=True)]

    def _run(self, feeds: Mapping[str, Any], new: int | None = None) -> Sequence[Any]:
        """Run a call whose mask covers past and new tokens; ``new`` is the number of tokens with padding at the end."""
        tokens, mask = feeds["input_ids"], feeds["attention_mask"]
        past = mask.shape[1] - tokens.shape[1]
        width = tokens.shape[1] if new is None else new
        padding = ((0, 0), (0, width - tokens.shape[1]))
        fixed = {
            "input_ids": np.pad(tokens, padding),
            "attention_mask": np.pad(mask, ((0, 0), (0, self.cache.length - mask.shape[1]))),
            POSITIONS: np.arange(past, past + width),
        }
        if "position_ids" in feeds:
            fixed["position_ids"] = np.pad(feeds["position_ids"], padding, mode="edge")
        logits, *states = self.runs[0 if width > 1 else -1]({**feeds, **fixed})
        return [logits[:, : tokens.shape[1]], *states]

    def _chunks(self, feeds: Mapping[str, Any]) -> Sequence[Any]:
        """Run one text in chunks of the length of prompts, the last one padded, or token by token at the end."""
        size, feeds = self.cache.prefill or 1, dict(feeds)
        tokens, mask = feeds["input_ids"], feeds["attention_mask"]
        before, begin, found = mask.shape[1] - tokens.shape[1], 0, []
        names = [name for name in feeds if name.startswith("past_key_values.")]
        while begin < tokens.shape[1]:
            fits = tokens.shape[1] - begin > 1 and before + begin + size <= self.cache.length
            end = min(begin + size, tokens.shape[1]) if fits else begin + 1
            part = {name: x[:, begin:end] for name, x in feeds.items() if name in ("input_ids", "position_ids")}
            part["attention_mask"] = mask[:, : before + end]
            logits, *states = self._run({**feeds, **part}, size if fits else 1)
            feeds |= dict(zip(names, states, strict=True))
            found.append(logits)
            begin = end
        return [np.concatenate(found, 1), *(feeds[name] for name in names)]
