"""Greedy generation of tokens as one graph: an exported encoder and decoder, and a Loop over decoder steps.

Source: transformers 5.24, ``generation/utils.py`` and ``generation/logits_process.py``.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from functools import reduce
from pathlib import Path
from typing import Any

import numpy as np

import tenonnx_standard as ops
from tenonnx import load
from tenonnx.extend import (
    DType,
    Graph,
    InvalidCall,
    InvalidModel,
    NotRepresentable,
    TensorType,
    Value,
    constant,
    copy_graph,
    inline,
    subgraph,
)
from tenonnx_extensions.pipelines.files import settings

#: Files of an exported encoder-decoder model, and the file of a decoder alone.
PARTS = ("encoder_model.onnx", "decoder_model.onnx", "decoder_with_past_model.onnx")
DECODER = "model.onnx"

_PAST, _PRESENT = "past_key_values.", "present."

#: Number of new tokens by default in transformers.
_NEW_TOKENS = 20

#: Settings that change greedy tokens but have no graph, with their values without effect.
_UNSUPPORTED: Mapping[str, tuple[Any, ...]] = {
    "encoder_no_repeat_ngram_size": (None, 0),
    "encoder_repetition_penalty": (None, 1.0),
    "exponential_decay_length_penalty": (None,),
    "forced_decoder_ids": (None, []),
    "guidance_scale": (None, 1.0),
    "lang_to_id": (None,),
    "no_repeat_ngram_size": (None, 0),
    "penalty_alpha": (None, 0.0),
    "repetition_penalty": (None, 1.0),
    "sequence_bias": (None, {}),
    "stop_strings": (None, []),
}

#: Weights of at least this size in bytes are shared between the graphs.
_LARGE = 1024

Feeds = dict[str, Value]


def generator(path: str | os.PathLike[str], *, new_tokens: int | None = None) -> Graph:
    """The graph of greedy generation, equal to ``generate`` of transformers with one beam and without sampling.

    ``path`` is a folder that ``tenonnx convert`` wrote for a model of transformers: with ``encoder_model.onnx``,
    ``decoder_model.onnx`` and ``decoder_with_past_model.onnx``, or with ``model.onnx`` for a decoder, and with
    ``config.json`` and, optionally, ``generation_config.json``. Inputs are those of the encoder, or ``input_ids`` and
    ``attention_mask`` for a decoder. The output ``sequences``, int64[batch, tokens], begins with the start token, or
    with the tokens of the input for a decoder. Rows that ended are padded; generation stops when all rows ended, or
    after ``new_tokens`` tokens, by default ``max_new_tokens`` or ``max_length`` of the configuration, or 20.

    Raises ``InvalidModel`` for a folder without these files, and ``NotRepresentable`` for settings that change greedy
    tokens but have no graph.
    """
    folder = Path(path)
    config = _Config(folder, new_tokens)
    if (folder / PARTS[0]).is_file():
        encoder, first, step = (_loaded(folder / name) for name in PARTS)
        graph = Graph("generator", opsets=_opsets(encoder, first, step))
        given = {value.name: graph.input(value.name, value.dtype, value.shape) for value in encoder.inputs}
        with graph.building():
            graph.output("sequences", _of_encoder_decoder(_Weights(graph), encoder, first, step, given, config))
        return graph
    decoder = _loaded(folder / DECODER)
    graph = Graph("generator", opsets=_opsets(decoder))
    read = {value.name for value in decoder.inputs}
    given = {name: graph.input(name, "int64", ("batch", "tokens")) for name in ("input_ids", "attention_mask")}
    if not {"input_ids", "attention_mask"} <= read or not any(name.startswith(_PAST) for name in read):
        raise InvalidModel(
            f'"{folder / DECODER}" is not a decoder with a mask and states',
            given=", ".join(sorted(read))[:500],
            do=f"give a folder with {DECODER}, or with {', '.join(PARTS)}",
        )
    with graph.building():
        graph.output("sequences", _of_decoder(_Weights(graph), decoder, given, config))
    return graph


def _loaded(file: Path) -> Graph:
    if not file.is_file():
        raise InvalidModel(f'cannot read "{file}": No such file or directory', available=", ".join((*PARTS, DECODER)))
    return load(file).infer()


def _opsets(*graphs: Graph) -> dict[str, int]:
    domains = {domain for graph in graphs for domain in graph.opsets}
    return {domain: max(graph.opsets.get(domain, 1) for graph in graphs) for domain in domains}


# ----- settings -------------------------------------------------------------------------------------------------------


class _Config:
    """Settings of greedy generation."""

    def __init__(self, folder: Path, new_tokens: int | None) -> None:
        if new_tokens is not None and new_tokens < 1:
            raise InvalidCall("new_tokens is not positive", given=str(new_tokens))
        file = folder / "generation_config.json"
        model = settings(folder / "config.json") if (folder / "config.json").is_file() else {}
        self.generation = settings(file) if file.is_file() else model
        self.model = model
        for key, allowed in _UNSUPPORTED.items():
            if self.generation.get(key) not in allowed:
                raise NotRepresentable(
                    f"unsupported setting of generation: {key}",
                    given=f"{self.generation[key]!r}"[:200],
                    available=", ".join(map(repr, allowed)),
                )
        self.ends = self._tokens("eos_token_id")
        self.forced_first, self.forced_last = self._token("forced_bos_token_id"), self._token("forced_eos_token_id")
        pads = self._tokens("pad_token_id") or self.ends
        self.pad = pads[0] if pads else 0
        self.new_tokens = new_tokens or self._count("max_new_tokens")
        self.length = None if self.new_tokens else self._count("max_length")
        words = self.generation.get("bad_words_ids") or []
        if any(len(word) != 1 for word in words):
            raise NotRepresentable(
                "unsupported setting of generation: bad_words_ids",
                given=f"{words!r}"[:200],
                available="lists of one token",
            )
        self.never = [word[0] for word in words if [word[0]] != self.ends] + self._tokens("suppress_tokens")
        self.not_first = self._tokens("begin_suppress_tokens")

    def _setting(self, key: str) -> Any:
        return self.generation[key] if self.generation.get(key) is not None else self.model.get(key)

    def _tokens(self, key: str) -> list[int]:
        found = self._setting(key)
        tokens = found if isinstance(found, list) else [] if found is None else [found]
        if not all(isinstance(token, int) and not isinstance(token, bool) for token in tokens):
            raise InvalidModel(f"wrong value of {key} in the configuration", given=f"{found!r}"[:200])
        return [token for token in tokens if token >= 0]

    def _token(self, key: str) -> int | None:
        tokens = self._tokens(key)
        return tokens[0] if tokens else None

    def _count(self, key: str) -> int | None:
        result = self.generation.get(key)
        if result is not None and (not isinstance(result, int) or isinstance(result, bool) or result < 0):
            raise InvalidModel(f"wrong value of {key} in the configuration", given=f"{result!r}"[:200])
        return result

    @property
    def start(self) -> int:
        """The first token of the decoder."""
        token = self._token("decoder_start_token_id")
        token = self._token("bos_token_id") if token is None else token
        if token is None:
            raise InvalidModel("the configuration has no decoder_start_token_id")
        return token

    def steps(self, prompt: Value | int) -> Value:
        """The number of new tokens after a prompt of that length, int64."""
        if self.length is None:
            return constant(np.int64(self.new_tokens or _NEW_TOKENS))
        if isinstance(prompt, int):
            return constant(np.int64(max(self.length - prompt, 1)))
        return ops.maximum(self.length - prompt, 1)

    def allowed(self, logits: Value, prompt: Value | int, number: Value | None) -> Value:
        """The logits without the tokens that the settings exclude; ``number`` is None for the first new token."""
        size = logits.shape[-1]
        excluded = _flags(self.never + (self.not_first if number is None else []), size)
        chosen = ops.where(excluded, np.float32(-np.inf), logits) if excluded.any() else logits
        ends = _flags(self.ends, size)
        done = constant(np.int64(0)) if number is None else number + 1
        for count, before in ((self._count("min_length"), prompt), (self._count("min_new_tokens"), 0)):
            if count and ends.any():
                early = ops.less(done + before, np.int64(count))
                chosen = ops.where(ops.and_(early, ends), np.float32(-np.inf), chosen)
        return chosen


def _flags(tokens: list[int], size: int) -> np.ndarray:
    flags = np.zeros(size, np.bool_)
    flags[[token for token in tokens if token < size]] = True
    return flags


# ----- graphs ---------------------------------------------------------------------------------------------------------


class _Weights:
    """Calls of graphs with shared weights: equal ones are stored once."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.variables: dict[Any, Value] = {}

    def opened(self, part: Graph, prefix: str) -> tuple[Graph, list[Value]]:
        """A copy of ``part`` with large weights as last inputs, and the weights."""
        copied = copy_graph(part)
        large = [value for value in copied.variables if value.data is not None and value.data.nbytes >= _LARGE]
        copied.variables = [value for value in copied.variables if value not in large]
        copied.all_inputs += large
        return copied, [self._shared(value, f"{prefix}/{value.name}") for value in large]

    def _shared(self, value: Value, name: str) -> Value:
        array = value.data.array()  # type: ignore[union-attr]
        key = (value.dtype, array.shape, hashlib.sha256(array.tobytes()).digest())
        if key not in self.variables:
            self.variables[key] = self.graph.variable(name, value.data)
        return self.variables[key]


def _call(opened: tuple[Graph, list[Value]], feeds: Feeds) -> Feeds:
    """The outputs of a graph by name."""
    part, weights = opened
    names = [value.name for value in part.all_inputs[: len(part.all_inputs) - len(weights)]]
    unknown = [name for name in names if name not in feeds]
    if unknown:
        raise InvalidModel(
            f'the decoder reads an input that generation does not compute: "{unknown[0]}"', available=", ".join(feeds)
        )
    found = inline(part, [*(feeds[name] for name in names), *weights])
    return {value.name: result for value, result in zip(part.outputs, found, strict=True) if result is not None}


def _states(found: Feeds) -> Feeds:
    """The states that a decoder returned, by the names of its inputs."""
    return {_PAST + name.removeprefix(_PRESENT): value for name, value in found.items() if name.startswith(_PRESENT)}


def _of_encoder_decoder(
    weights: _Weights, encoder: Graph, first: Graph, step: Graph, given: Feeds, config: _Config
) -> Value:
    (hidden,) = _call(weights.opened(encoder, "encoder"), given).values()
    mask = {"encoder_attention_mask": given["attention_mask"]} if "attention_mask" in given else {}
    batch = ops.shape(hidden)[0:1]
    start = ops.expand(np.int64(config.start), ops.concat(batch, np.array([1]), axis=0))
    found = _call(weights.opened(first, "decoder"), {**mask, "input_ids": start, "encoder_hidden_states": hidden})
    opened = weights.opened(step, "step")
    states = _states(found)
    own = {name: value for name, value in states.items() if _PRESENT + name.removeprefix(_PAST) in _outputs(step)}
    fixed = mask | {name: value for name, value in states.items() if name not in own}
    return _looped(
        lambda tokens, number, held: _call(opened, fixed | held | {"input_ids": tokens}), found, own, start, 1, config
    )


def _outputs(graph: Graph) -> set[str]:
    return {value.name for value in graph.outputs}


def _of_decoder(weights: _Weights, decoder: Graph, given: Feeds, config: _Config) -> Value:
    tokens, mask = given["input_ids"], given["attention_mask"]
    opened = weights.opened(decoder, "decoder")
    sizes = ops.shape(tokens)
    batch, length = sizes[0:1], sizes[1]
    one = np.array([1])
    places = ops.where(ops.equal(mask, np.int64(0)), np.int64(0), ops.cumsum(mask, np.int64(1)) - 1)
    empty = {value.name: _empty(value, batch) for value in decoder.inputs if value.name.startswith(_PAST)}
    found = _call(opened, {"input_ids": tokens, "attention_mask": mask, "position_ids": places} | empty)
    count = ops.reduce_sum(mask, [1])

    def step(token: Value, number: Value, held: Feeds) -> Feeds:
        behind = ops.expand(np.int64(1), ops.concat(batch, ops.reshape(number + 1, one), axis=0))
        feeds = {"attention_mask": ops.concat(mask, behind, axis=1), "position_ids": count + number}
        return _call(opened, {"input_ids": token} | feeds | held)

    return _looped(step, found, _states(found), tokens, length, config)


def _empty(value: Value, batch: Value) -> Value:
    """A state before the first token: zeros, without any tokens."""
    sizes = [np.array([size if isinstance(size, int) else 0]) for size in value.shape[1:]]
    return ops.expand(ops.cast(np.float32(0), to=value.dtype), ops.concat(batch, *sizes, axis=0))


def _looped(step: Any, found: Feeds, states: Feeds, prompt: Value, length: Value | int, config: _Config) -> Value:
    """The prompt with the tokens that greedy steps append."""
    steps = config.steps(length)
    names = list(states)

    def chosen(logits: Value, number: Value | None) -> Value:
        """The next token of each row, int64[batch, 1]; ``number`` is that of the step, None for the first token."""
        last = ops.squeeze(ops.slice_(logits, [-1], [2**62], [1]), [1])
        last = last if last.dtype is DType.float32 else ops.cast(last, to=DType.float32)
        best = ops.argmax(config.allowed(last, length, number), axis=-1, keepdims=1)
        if config.forced_first is not None and number is None and length == 1:
            best = best * 0 + config.forced_first
        if config.forced_last is not None:
            place = constant(np.int64(0)) if number is None else number + 1
            best = ops.where(ops.equal(place, steps - 1), np.int64(config.forced_last), best)
        return best

    def ended(tokens: Value) -> Value:
        return reduce(ops.or_, (ops.equal(tokens, np.int64(end)) for end in config.ends), ops.less(tokens, np.int64(0)))

    def goes_on(done: Value) -> Value:
        return ops.not_(ops.cast(ops.reduce_min(ops.cast(done, to=DType.int32), keepdims=0), to=DType.bool))

    def body(number: Value, _: Value, tokens: Value, done: Value, sequences: Value, *held: Value) -> list[Value]:
        after = step(tokens, number, dict(zip(names, held, strict=True)))
        token = ops.where(done, np.int64(config.pad), chosen(after["logits"], number))
        done = ops.or_(done, ended(token))
        present = _states(after)
        return [goes_on(done), token, done, ops.concat(sequences, token, axis=1), *(present[name] for name in names)]

    token = chosen(found["logits"], None)
    done = ended(token)
    start = [token, done, ops.concat(prompt, token, axis=1), *states.values()]
    formals = [("step", TensorType(DType.int64, ())), ("goes_on", TensorType(DType.bool, ()))]
    kinds = ["token", "done", "generated", *names]
    formals += [(name, _of_any_length(value)) for name, value in zip(kinds, start, strict=True)]
    looped = subgraph(body, formals, name="step")
    sequences: Value = ops.loop(steps - 1, goes_on(done), *start, body=looped)[2]
    return sequences


def _of_any_length(value: Value) -> TensorType:
    """The type of a value whose dims, other than fixed ones, may change."""
    return TensorType(value.dtype, tuple(size if isinstance(size, int) else None for size in value.shape))
