"""Greedy generation by exported decoders, compared with ``generate`` of the model."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from tenonnx import VerificationFailed
from tenonnx.extend.checks import Tolerance
from tenonnx_transformers.decoders import positions_of
from tenonnx_transformers.sources import quiet
from tenonnx_transformers.states import State

#: Prompts of one batch, by length, and the tokens that follow each.
LENGTHS, TOKENS = (4, 7, 11), 64

#: What runs a graph: arrays by input name to arrays in the order of the outputs.
Run = Callable[[Mapping[str, Any]], Sequence[Any]]


@dataclass(frozen=True)
class Generated:
    """Comparison of greedy tokens of a file in ``runtime`` with those of the model: ``equal`` of ``tokens`` are equal.

    ``ties`` counts prompts that differ at a token where the two logits of the model are equal up to rounding; tokens
    after it count as not equal.
    """

    runtime: str
    prompts: int
    tokens: int
    equal: int
    ties: int = 0

    def to_dict(self) -> dict[str, Any]:
        return dict(vars(self))

    def __str__(self) -> str:
        ties = f"; {self.ties} part where two logits are equal but for rounding" if self.ties else ""
        return f"{self.equal} of {self.tokens} greedy tokens of {self.prompts} prompts equal those of generate{ties}"


@dataclass(frozen=True)
class Prompts:
    """A batch of prompts of different lengths, padded on the left: ``tokens`` and ``mask``, int64 of (batch, length).

    ``pad`` fills the places before them, and no prompt contains it.
    """

    tokens: torch.Tensor
    mask: torch.Tensor
    pad: int

    def alone(self, row: int) -> Prompts:
        """One of the prompts, without padding."""
        tokens = self.tokens[row][self.mask[row] == 1][None]
        return Prompts(tokens, torch.ones_like(tokens), self.pad)

    def on_the_right(self) -> torch.Tensor:
        """The tokens padded on the right."""
        order = (1 - self.mask).argsort(dim=1, stable=True)
        return self.tokens.gather(1, order)


def prompts_for(config: Any, lengths: Sequence[int] = LENGTHS, seed: int = 0) -> Prompts:
    """Prompts of random tokens that have no special meaning to a model."""
    text = config.get_text_config(decoder=True)
    special = {value for name, value in text.to_dict().items() if name.endswith("token_id") and isinstance(value, int)}
    special |= {value for name, value in config.to_dict().items() if name.endswith("token_id") and type(value) is int}
    usual = [token for token in range(min(text.vocab_size, 2000)) if token not in special]
    pad = pad_of(text)
    generator = np.random.default_rng(seed)
    longest = max(lengths)
    tokens = torch.full((len(lengths), longest), pad)
    mask = torch.zeros_like(tokens)
    for row, length in enumerate(lengths):
        drawn = generator.choice([token for token in usual if token != pad], length)
        tokens[row, longest - length :] = torch.from_numpy(drawn)
        mask[row, longest - length :] = 1
    return Prompts(tokens, mask, pad)


def pad_of(config: Any) -> int:
    """The padding token: that of the config, or else its first end token, or 0."""
    for given in (getattr(config, "pad_token_id", None), *ends_of(config)):
        if isinstance(given, int) and 0 <= given < config.vocab_size:
            return given
    return 0


def ends_of(config: Any) -> list[int]:
    """The tokens that end a text."""
    given = getattr(config, "eos_token_id", None)
    return list(given) if isinstance(given, list | tuple) else [given] if isinstance(given, int) else []


def steps_for(config: Any, wanted: int = TOKENS) -> int:
    """The number of tokens to generate: ``wanted``, or fewer if the model has too few positions."""
    limit = getattr(config.get_text_config(decoder=True), "max_position_embeddings", None)
    room = wanted if not isinstance(limit, int) else limit - max(LENGTHS)
    return max(1, min(wanted, room))


def generated_by_model(model: Any, prompts: Prompts, steps: int, **inputs: Any) -> np.ndarray[Any, Any]:
    """Greedy tokens of ``generate``, int64 of (batch, ``steps``); texts do not end before."""
    with quiet(), torch.no_grad():
        found = model.generate(
            **(inputs or {"input_ids": prompts.tokens, "attention_mask": prompts.mask}),
            max_new_tokens=steps,
            min_new_tokens=steps,
            do_sample=False,
            num_beams=1,
            repetition_penalty=1.0,
            pad_token_id=prompts.pad,
        )
    return np.asarray(found[:, -steps:])


def generated_by_graph(
    run: Run, inputs: Sequence[str], states: Sequence[State], prompts: Prompts, steps: int, ends: Sequence[int]
) -> np.ndarray[Any, Any]:
    """Greedy tokens of a decoder, int64 of (batch, ``steps``): its states go from each call into the next."""
    tokens, mask = prompts.tokens, prompts.mask
    held = {state.past: state.empty(len(tokens)).numpy() for state in states}
    found = []
    for _ in range(steps):
        feeds = {"input_ids": tokens, "attention_mask": mask, "position_ids": positions_of(mask)[:, -tokens.shape[1] :]}
        given = {name: tensor.numpy() for name, tensor in feeds.items() if name in {*inputs, "attention_mask"}}
        logits, *after = run({**given, **held})
        held = {state.past: array for state, array in zip(states, after, strict=True)}
        last = np.array(logits[:, -1], np.float32)
        last[:, [end for end in ends if 0 <= end < last.shape[-1]]] = -np.inf
        found.append(last.argmax(-1))
        tokens = torch.from_numpy(found[-1])[:, None]
        mask = torch.cat([mask, mask.new_ones(len(mask), 1)], 1)
    return np.stack(found, 1)


def compare_tokens(
    runtime: str,
    actual: np.ndarray[Any, Any],
    expected: np.ndarray[Any, Any],
    logits: Callable[[int, int], np.ndarray[Any, Any]],
    allowed: Tolerance,
) -> Generated:
    """Compare tokens of prompts. ``logits`` are those of the model, of (vocabulary,), for a prompt and a step.

    Tokens after the first difference are not compared. Raises ``VerificationFailed`` if the logit of the differing
    token is below that of the model's own token by more than rounding explains.
    """
    same = actual == expected
    equal = ties = 0
    for row, right in enumerate(same):
        step = len(right) if right.all() else int(np.argmin(right))
        equal += step
        if step == len(right):
            continue
        found = logits(row, step)
        gap = float(found[expected[row, step]] - found[actual[row, step]])
        if gap > 2 * allowed.absolute * max(1.0, float(np.abs(found).max())):
            raise VerificationFailed(
                f"{runtime} generated tokens that differ from the model's",
                given=f"prompt {row + 1}, token {step + 1}: {actual[row, step]} instead of {expected[row, step]}, "
                f"whose logit is {gap:.3g} above",
            )
        ties += 1
    return Generated(runtime, len(actual), actual.size, equal, ties)
