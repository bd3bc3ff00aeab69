"""Graphs of a model as files, each compared with the model."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

import tenonnx as tx
from tenonnx.extend import Graph, NotRepresentable
from tenonnx_transformers import genai
from tenonnx_transformers.calls import call_part
from tenonnx_transformers.decoders import decoder_parts, decoder_states
from tenonnx_transformers.encoder_decoders import encoder_decoder_parts
from tenonnx_transformers.generation import Generated, compare_tokens, generated_by_model, prompts_for, steps_for
from tenonnx_transformers.layouts import Layout, write_configs
from tenonnx_transformers.parts import Part
from tenonnx_transformers.sources import Source, quiet
from tenonnx_transformers.states import PAST, has_window
from tenonnx_transformers.step_verification import compare_steps, compare_texts
from tenonnx_transformers.tasks import DECODER, ENCODER_DECODER
from tenonnx_transformers.verification import (
    Compared,
    Decoder,
    Session,
    compare_calls,
    compare_generation,
    compare_logits,
    logits_after,
    near,
)

#: Bytes of weights from which they go to a file of their own: a message of protocol buffers holds 2 GiB.
LARGE = 1_500_000_000


@dataclass(frozen=True)
class Settings:
    """Settings of an export: its layout, ``fields`` of ``tx.ExportConfig``, and how near numbers have to be."""

    layout: Layout
    fields: Mapping[str, Any]
    verify: bool
    atol: float | None
    rtol: float | None
    progress: Callable[[str], object]


@dataclass
class Written:
    """Graphs that were written, by file name with their inputs, and what was compared."""

    graphs: dict[str, Sequence[str]] = field(default_factory=dict)
    compared: list[Compared] = field(default_factory=list)
    generated: list[Generated] = field(default_factory=list)


def write_model(source: Source, folder: Path, settings: Settings) -> Written:
    """Write the graphs and files of a model to an empty folder. Raises as ``export``."""
    with plain_attention(source.model):
        if source.task.kind == DECODER:
            return _write_decoder(source, folder, settings)
        if source.task.kind == ENCODER_DECODER:
            return _write_encoder_decoder(source, folder, settings)
        return _write_call(source, folder, settings)


@contextlib.contextmanager
def plain_attention(model: Any) -> Iterator[None]:
    """Make a model compute attention by matrix products with an additive mask."""
    before = model.config._attn_implementation
    try:
        with quiet():
            model.set_attn_implementation("eager")
        yield
    finally:
        with quiet():
            model.set_attn_implementation(before)


def write_part(part: Part, folder: Path, settings: Settings) -> tuple[Path, Graph]:
    """Write one graph. Raises ``NotRepresentable`` for what ONNX or the target cannot hold."""
    settings.progress(f"tracing {part.name}")
    with quiet():
        graph = part.graph()
    path = folder / settings.layout.subfolder / f"{part.name}.onnx"
    path.parent.mkdir(parents=True, exist_ok=True)
    size = sum(value.data.nbytes for value in graph.variables if value.data is not None)
    fields = {"external_data_threshold": 1024 if size > LARGE else None, **settings.fields}
    settings.progress(f"writing {part.name}")
    tx.export(graph, path, **fields)
    return path, graph


def _write_decoder(source: Source, folder: Path, settings: Settings) -> Written:
    model: Any = source.model
    states = decoder_states(model)
    settings.layout.check(model.config.get_text_config(decoder=True).model_type, states)
    parts, written, runs = decoder_parts(model, states), Written(), []
    if len(parts) > 1 and settings.layout.name != "onnxruntime":
        held = next(state for state in states if PAST not in state.axes.values())
        raise NotRepresentable(
            f"{settings.layout.name} takes one graph, and the model needs two: for the prompt and for later tokens",
            given=f"layer {held.layer} of {type(model).__name__}: {held.kind}",
            do="use --layout onnxruntime",
        )
    for part in parts:
        path, graph = write_part(part, folder, settings)
        written.graphs[str(path.relative_to(folder))] = list(part.examples)
        runs.append(path)
    write_configs(source, folder)
    settings.layout.write(source, folder, written.graphs, states)
    if settings.verify:
        settings.progress("comparing the decoder with the model")
        allowed = near(graph, settings.atol, settings.rtol)
        run = Decoder([Session.of(path) for path in runs])
        written.compared += compare_logits(model, states, run, parts[0].name, allowed)
        written.generated.append(compare_generation(model, states, run, allowed))
        if settings.layout.name == "genai" and genai.is_installed():
            settings.progress("generating by onnxruntime-genai")
            padded = not has_window(model.config) and all(PAST in state.axes.values() for state in states)
            written.generated.append(_compare_genai(model, folder, allowed, padded))
    return written


def _write_encoder_decoder(source: Source, folder: Path, settings: Settings) -> Written:
    parts = encoder_decoder_parts(source)
    settings.layout.check(source.config.model_type, parts.states)
    written, runs, tolerances = Written(), [], []
    for part in parts[:3]:
        path, graph = write_part(part, folder, settings)
        written.graphs[str(path.relative_to(folder))] = list(part.examples)
        runs.append(Session.of(path))
        tolerances.append(near(graph, settings.atol, settings.rtol))
    write_configs(source, folder)
    if settings.verify:
        settings.progress("comparing the graphs with the model")
        allowed = max(tolerances, key=lambda each: each.absolute)
        written.compared += compare_steps(source, parts, runs, allowed)
        written.generated.append(compare_texts(source, parts, runs, allowed))
    return written


def _write_call(source: Source, folder: Path, settings: Settings) -> Written:
    settings.layout.check(source.config.model_type, ())
    part = call_part(source)
    path, graph = write_part(part, folder, settings)
    written = Written({str(path.relative_to(folder)): list(part.examples)})
    write_configs(source, folder)
    settings.layout.write(source, folder, written.graphs, ())
    if settings.verify:
        settings.progress(f"comparing {part.name} with the model")
        allowed = near(graph, settings.atol, settings.rtol)
        written.compared += compare_calls(source, part, Session.of(path), allowed)
    return written


def _compare_genai(model: Any, folder: Path, allowed: Any, padded: bool) -> Generated:
    """Compare greedy tokens of onnxruntime-genai, which pads prompts on the right.

    Where not ``padded``, it takes one prompt after the other: a window or a convolution would count the padding.
    """
    prompts, steps = prompts_for(model.config), steps_for(model.config)
    expected = generated_by_model(model, prompts, steps)
    batches = [prompts] if padded else [prompts.alone(row) for row in range(len(prompts.tokens))]
    actual = np.concatenate([genai.generated_by_genai(folder, each, steps) for each in batches])
    runtime = "onnxruntime-genai" if padded else "onnxruntime-genai, one prompt at a time"
    return compare_tokens(runtime, actual, expected, logits_after(model, prompts, expected), allowed)
