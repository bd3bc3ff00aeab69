"""Comparison of exported graphs with the model, on logits and greedy tokens."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import torch

from tenonnx import Graph, VerificationFailed
from tenonnx.extend.checks import Tolerance, accumulation, compare, tolerance_for
from tenonnx_torch.examples import to_numpy
from tenonnx_transformers.calls import inputs_for
from tenonnx_transformers.decoders import positions_of, token_inputs
from tenonnx_transformers.generation import (
    TOKENS,
    Generated,
    Prompts,
    Run,
    compare_tokens,
    ends_of,
    generated_by_graph,
    generated_by_model,
    prompts_for,
    steps_for,
)
from tenonnx_transformers.parts import Part
from tenonnx_transformers.sources import Source
from tenonnx_transformers.states import State

#: Test texts: rows of padding masks (1 is a token), and numbers of new tokens in successive calls, the first without
#: past. Rows have no padding, or padding on the left or right.
CALLS: Sequence[tuple[Sequence[str], Sequence[int]]] = (
    (["1" * 6], (1, 3, 2)),
    (["1" * 12, "11111000" + "1111"], (8, 1, 3)),
    (["1" * 14, "0" * 5 + "1" * 9, "0" * 8 + "1" * 6], (9, 1, 4)),
)


@dataclass(frozen=True)
class Compared:
    """Largest difference of one output in a call, which ``call`` describes, such as ``batch 2, past 8, new 1``."""

    part: str
    output: str
    call: str
    absolute: float
    relative: float

    def to_dict(self) -> dict[str, Any]:
        return dict(vars(self))


@dataclass(frozen=True)
class Session:
    """A file in onnxruntime. Calls take arrays by name, ignore unknown names, and return the outputs in order.

    ``options`` are those of a run, such as an adapter.
    """

    session: Any
    options: Any = None

    @classmethod
    def of(cls, path: Path) -> Session:
        """Load a file. Raises ``VerificationFailed`` if onnxruntime cannot load it."""
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 4  # errors are reported by exceptions
        options.add_session_config_entry("session.disable_prepacking", "1")  # weights stay in the mapped file
        try:
            return cls(onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"]))
        except Exception as error:  # of its own binding
            raise VerificationFailed(
                "onnxruntime does not load the exported graph", given=f"{path.name}: {str(error)[:300]}"
            ) from error

    @property
    def inputs(self) -> list[str]:
        return [each.name for each in self.session.get_inputs()]

    def __call__(self, feeds: Mapping[str, Any]) -> Sequence[Any]:
        known = set(self.inputs)
        given = {name: feeds[name] for name in feeds if name in known}
        try:
            result: Sequence[Any] = self.session.run(None, given, self.options)
        except Exception as error:  # of its own binding
            sizes = ", ".join(f"{name} {tuple(array.shape)}" for name, array in list(given.items())[:3])
            raise VerificationFailed(
                "onnxruntime does not run the exported graph", given=f"{sizes}: {str(error)[:300]}"
            ) from error
        return result


@dataclass(frozen=True)
class Decoder:
    """The sessions of a decoder: a single one, or one for the prompt and one for later tokens.

    ``one_by_one`` is set for fused attention, which takes batches with a past token by token, and no left padding.
    """

    runs: Sequence[Session]
    one_by_one: bool = False

    @property
    def inputs(self) -> list[str]:
        return [name for run in self.runs for name in run.inputs]

    @property
    def limit(self) -> int | None:
        """Maximum number of tokens of a text, or None."""
        return None

    def __call__(self, feeds: Mapping[str, Any]) -> Sequence[Any]:
        past = feeds["attention_mask"].shape[1] > feeds["input_ids"].shape[1]
        return self.runs[-1 if past else 0](feeds)

    def lengths(self, news: Sequence[int], batch: int) -> Sequence[int]:
        """Numbers of new tokens in successive calls, adapted to what the graphs accept."""
        any_length = len(self.runs) == 1 and (batch == 1 or not self.one_by_one)
        return news if any_length else (news[0], *[1] * sum(news[1:]))


def near(graph: Graph, atol: float | None = None, rtol: float | None = None) -> Tolerance:
    """Return the tolerance between a graph and its model: as given, or derived from the length of sums in the graph."""
    usual = tolerance_for(next(v.dtype for v in graph.outputs if v.dtype is not None), accumulation(graph))
    return Tolerance(
        usual.absolute if atol is None else atol,
        usual.relative if rtol is None else rtol,
        usual.reason or "rounding in sums of this length",
    )


def check(part: str, output: str, where: str, actual: Any, expected: Any, allowed: Tolerance) -> Compared:
    """Compare two arrays. Raises ``VerificationFailed`` if their difference exceeds the tolerance."""
    scale = max(1.0, float(np.abs(expected).max(initial=0.0)))
    found = compare(actual, expected, tolerance=Tolerance(allowed.absolute * scale, allowed.relative, allowed.reason))
    if not found.equal:
        raise VerificationFailed(
            f'output "{output}" of {part} differs from the model', given=f"{where}: {found.reason}"
        )
    return Compared(part, output, where, found.absolute, found.relative)


def compare_logits(
    model: torch.nn.Module, states: Sequence[State], run: Decoder, part: str, allowed: Tolerance, seed: int = 0
) -> list[Compared]:
    """Compare a decoder with one call of the model for the whole text, for several sizes of batch, past and new tokens.

    Texts of a batch have different lengths, with padding on either side. Raises ``VerificationFailed``.
    """
    result = []
    for rows, news in CALLS:
        if run.one_by_one and any(row.startswith("0") for row in rows):
            continue
        mask = torch.tensor([[int(each) for each in row] for row in rows])
        tokens = prompts_for(model.config, [mask.shape[1]] * len(mask), seed).tokens
        with torch.no_grad():
            whole = model(**token_inputs(model, tokens, mask), use_cache=False).logits.float().numpy()
        past = {state.past: state.empty(len(tokens)).numpy() for state in states}
        begin = 0
        for new in run.lengths(news, len(tokens)):
            end = begin + new
            inputs = token_inputs(model, tokens[:, begin:end], mask[:, :end], positions_of(mask)[:, begin:end])
            feeds = {name: tensor.numpy() for name, tensor in inputs.items()} | {
                "attention_mask": mask[:, :end].numpy()
            }
            logits, *after = run({**feeds, **past})
            past = {state.past: array for state, array in zip(states, after, strict=True)}
            seen = mask[:, begin:end].numpy() == 1
            where = f"batch {len(tokens)}, past {begin}, new {new}"
            expected = whole[:, begin:end][seen]
            result.append(check(part, "logits", where, np.asarray(logits, np.float32)[seen], expected, allowed))
            begin = end
    return result


def compare_generation(
    model: Any, states: Sequence[State], run: Decoder, allowed: Tolerance, steps: int | None = None
) -> Generated:
    """Compare greedy tokens of a decoder with those of ``generate``. Raises ``VerificationFailed`` if they differ."""
    prompts = prompts_for(model.config)
    room = TOKENS if run.limit is None else run.limit - prompts.tokens.shape[1]
    count = min(room, steps_for(model.config)) if steps is None else steps
    padded = not run.one_by_one and takes_padding(model, prompts)
    batches = [prompts] if padded else [prompts.single(row) for row in range(len(prompts.tokens))]
    expected = np.concatenate([generated_by_model(model, each, count) for each in batches])
    ends = ends_of(model.generation_config)
    actual = np.concatenate([generated_by_graph(run, run.inputs, states, each, count, ends) for each in batches])
    runtime = "onnxruntime" if padded else "onnxruntime, one prompt at a time"
    return compare_tokens(runtime, actual, expected, logits_after(model, prompts, expected), allowed)


def takes_padding(model: Any, prompts: Prompts) -> bool:
    """Whether the model ignores left padding; some recurrent models do not apply the mask."""
    unpadded = prompts.single(0)
    last = []
    for each in (prompts, unpadded):
        with torch.no_grad():
            last.append(model(**token_inputs(model, each.tokens, each.mask), use_cache=False).logits[0, -1])
    return torch.allclose(*last, rtol=1e-2, atol=1e-2)


def takes_inner_padding(model: Any, prompts: Prompts) -> bool:
    """Whether the model ignores padding between a prompt and later tokens, as onnxruntime-genai inserts it.

    Windows of attention and biases by distance may count padding as tokens.
    """
    text = prompts.single(0).tokens
    last = []
    for pads in (0, steps_for(model.config)):
        cut = text.shape[1] - 2
        inner = torch.full((1, pads), prompts.pad)
        tokens = torch.cat([text[:, :cut], inner, text[:, cut:]], 1)
        mask = torch.ones_like(tokens)
        mask[:, cut : cut + pads] = 0
        with torch.no_grad():
            last.append(model(**token_inputs(model, tokens, mask), use_cache=False).logits[0, -1])
    return torch.allclose(*last, rtol=1e-2, atol=1e-2)


def logits_after(model: Any, prompts: Prompts, expected: np.ndarray[Any, Any]) -> Any:
    """Return a function from a prompt index and a step to the model's logits, for ``compare_tokens``."""

    def logits(row: int, step: int) -> np.ndarray[Any, Any]:
        given = prompts.tokens[row][prompts.mask[row] == 1]
        tokens = torch.cat([given, torch.from_numpy(expected[row, :step])])[None]
        with torch.no_grad():
            found = model(**token_inputs(model, tokens, torch.ones_like(tokens)), use_cache=False)
        return np.asarray(found.logits[0, -1].float())

    return logits


def compare_calls(source: Source, part: Part, run: Run, allowed: Tolerance) -> list[Compared]:
    """Compare a model without generation at several batch sizes and lengths. Raises ``VerificationFailed``."""
    result = []
    for seed, (batch, length) in enumerate(((2, 7), (1, 1), (3, 12))):
        inputs = inputs_for(source, batch, length, seed)
        with torch.no_grad():
            expected = part.call(inputs)
        actual = run({name: tensor.numpy() for name, tensor in inputs.items()})
        where = ", ".join(f"{name} {tuple(tensor.shape)}" for name, tensor in inputs.items())
        result += [
            check(part.name, name, where, a, to_numpy(e), allowed)
            for name, a, e in zip(part.outputs, actual, expected, strict=True)
        ]
    return result
