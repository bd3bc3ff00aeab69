"""Writing of a model's graphs to files, and comparison with the model."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

import tenonnx as tx
from tenonnx.extend import Graph, NotRepresentable
from tenonnx_transformers import genai
from tenonnx_transformers.adapters import (
    Adapter,
    active,
    merged,
    read_adapters,
    set_defaults,
    with_adapters,
    write_adapter,
)
from tenonnx_transformers.calls import call_part
from tenonnx_transformers.data_files import split_data
from tenonnx_transformers.decoders import decoder_parts, decoder_states
from tenonnx_transformers.encoder_decoders import encoder_decoder_parts
from tenonnx_transformers.fused import fused
from tenonnx_transformers.generation import Generated, compare_tokens, generated_by_model, prompts_for, steps_for
from tenonnx_transformers.layouts import Layout, write_configs
from tenonnx_transformers.parts import Part
from tenonnx_transformers.precisions import Loss, file_name, in_precision, loss_of
from tenonnx_transformers.sources import Source, failures_of, quiet
from tenonnx_transformers.states import BATCH, PAST, State, has_window
from tenonnx_transformers.static_cache import StaticCache, StaticDecoder, static_parts
from tenonnx_transformers.step_verification import compare_steps, compare_texts
from tenonnx_transformers.tasks import DECODER, ENCODER_DECODER, VISION_DECODER
from tenonnx_transformers.verification import (
    Compared,
    Decoder,
    Session,
    compare_calls,
    compare_generation,
    compare_logits,
    logits_after,
    near,
    takes_inner_padding,
)
from tenonnx_transformers.vision_language import compare_images, vision_language_parts


@dataclass(frozen=True)
class Settings:
    """Settings of an export; ``fields`` are those of ``tx.ExportConfig``."""

    layout: Layout
    fields: Mapping[str, Any]
    verify: bool
    atol: float | None
    rtol: float | None
    progress: Callable[[str], object]
    precision: str = "fp32"
    max_shard: int | None = None
    adapters: Sequence[Path] = ()
    cache: StaticCache | None = None

    @property
    def fuses(self) -> bool:
        """Whether graphs may have onnxruntime's fused operators, according to the target or else the layout.

        A static cache is for runtimes without these.
        """
        if self.cache is not None:
            return False
        target = self.fields.get("target")
        return self.layout.fuses if target is None else str(target).startswith("onnxruntime")


@dataclass
class Written:
    """Written graphs (inputs by file name), and results of comparisons.

    ``lossy`` are graphs to rewrite in a lower precision, ``losses`` their errors. ``notes`` list skipped steps.
    ``adapters`` were written, too.
    """

    graphs: dict[str, Sequence[str]] = field(default_factory=dict)
    compared: list[Compared] = field(default_factory=list)
    generated: list[Generated] = field(default_factory=list)
    states: Sequence[State] = ()
    lossy: list[tuple[Part, Path, Graph]] = field(default_factory=list)
    losses: list[Loss] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    adapters: list[Adapter] = field(default_factory=list)


def write_model(source: Source, folder: Path, settings: Settings) -> Written:
    """Write the graphs and files of a model to an empty folder. Raises the errors of ``export``."""
    for name, option in (("adapters are", settings.adapters), ("a static cache is", settings.cache)):
        if option and source.task.kind != DECODER:
            raise NotRepresentable(f"{name} supported for decoders only", given=f"the task {source.task.name}")
    if settings.cache is not None and settings.layout.name != "onnxruntime":
        raise NotRepresentable(
            f"{settings.layout.name} does not take a static cache", do="use --layout onnxruntime, or leave out --cache"
        )
    kinds = {DECODER: _write_decoder, ENCODER_DECODER: _write_encoder_decoder, VISION_DECODER: _write_vision_decoder}
    write = kinds.get(source.task.kind, _write_call)
    with plain_attention(source.model), failures_of(source.model):
        written = write(source, folder, settings)
    if settings.precision != "fp32":
        _lower(written, folder, settings)
        settings.layout.write(source, folder, written.graphs, written.states)
    return written


def _lower(written: Written, folder: Path, settings: Settings) -> None:
    """Replace the written float32 graphs by graphs in the requested precision."""
    graphs, written.graphs = written.graphs, {}
    for part, path, graph in written.lossy:
        settings.progress(f"writing {part.name} in {settings.precision}")
        feeds = {name: tensor.numpy() for name, tensor in _first_text(part).items()}
        before = Session.of(path)(feeds) if settings.verify else []
        inputs = graphs[str(path.relative_to(folder))]
        for old in path.parent.glob(f"{path.name}*"):
            old.unlink()
        path = file_name(path, settings.precision, settings.layout.name)
        with quiet():
            lowered = in_precision(graph, settings.precision, settings.fields.get("target"))
        _write_graph(lowered, path, settings)
        written.graphs[str(path.relative_to(folder))] = inputs
        if settings.verify:
            written.losses.append(loss_of(part, settings.precision, before, Session.of(path)(feeds)))


def _first_text(part: Part) -> dict[str, Any]:
    """Return the examples of a part for the first text only, since fused attention continues one text at a time."""
    axes = {name: axis for name, dims in part.dims.items() for axis, dim in dims.items() if dim == BATCH}
    return {name: x.narrow(axes[name], 0, 1) if name in axes else x for name, x in part.examples.items()}


@contextlib.contextmanager
def plain_attention(model: Any) -> Iterator[None]:
    """Switch a model to eager attention: matrix products with an additive mask."""
    before = model.config._attn_implementation
    try:
        with quiet():
            model.set_attn_implementation("eager")
        yield
    finally:
        with quiet():
            model.set_attn_implementation(before)


def write_part(part: Part, folder: Path, settings: Settings) -> tuple[Path, Graph]:
    """Write one graph. Raises ``NotRepresentable`` if ONNX or the target cannot express it."""
    graph = _trace_part(part, settings)
    path = _path_of(part, folder, settings)
    settings.progress(f"writing {part.name}")
    _write_graph(graph, path, settings)
    return path, graph


def _trace_part(part: Part, settings: Settings) -> Graph:
    settings.progress(f"tracing {part.name}")
    with quiet():
        return part.graph()


def _path_of(part: Part, folder: Path, settings: Settings) -> Path:
    """The file of a part, in a folder that exists."""
    path = folder / settings.layout.subfolder / f"{part.name}.onnx"
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


def _write_graph(graph: Graph, path: Path, settings: Settings) -> None:
    size = sum(value.data.nbytes for value in graph.variables if value.data is not None)
    domains = {"domains": ["ai.onnx", "com.microsoft"]} if settings.fuses and "target" not in settings.fields else {}
    embedded = min(settings.layout.embedded, settings.max_shard or settings.layout.embedded)
    external = {"external_data_threshold": 1024 if size > embedded else None}
    tx.export(graph, path, **{**domains, **external, **settings.fields})
    if settings.adapters:
        set_defaults(path)
    split_data(path, settings.max_shard, settings.layout.data_suffix)


def _write_decoder(source: Source, folder: Path, settings: Settings) -> Written:
    model: Any = source.model
    states = decoder_states(model)
    settings.layout.check(model.config.get_text_config(decoder=True).model_type, states)
    if settings.cache is not None:
        parts, states = static_parts(model, states, settings.cache)
    else:
        parts = decoder_parts(model, states)
    written, runs = Written(states=states), []
    if settings.adapters:
        written.adapters = read_adapters(settings.adapters, model)
        parts = [with_adapters(part, written.adapters) for part in parts]
        for adapter in written.adapters:
            write_adapter(adapter, parts[0], folder)
    if len(parts) > 1 and settings.layout.name != "onnxruntime":
        fixed_state = next(state for state in states if PAST not in state.axes.values())
        raise NotRepresentable(
            f"{settings.layout.name} takes one graph, and the model needs two: for the prompt and for later tokens",
            given=f"layer {fixed_state.layer} of {type(model).__name__}: {fixed_state.kind}",
            do="use --layout onnxruntime",
        )
    write_configs(source, folder)
    for part in parts:
        path = _path_of(part, folder, settings)
        written.graphs[str(path.relative_to(folder))] = list(part.examples)
    settings.layout.write(source, folder, written.graphs, states)
    if settings.fuses and len(parts) == 1:
        return _write_fused(written, source, folder, parts[0], settings)
    for part in parts:
        path, graph = write_part(part, folder, settings)
        written.lossy.append((part, path, graph))
        runs.append(path)
    sessions = [Session.of(path) for path in runs]
    decoder = Decoder(sessions) if settings.cache is None else StaticDecoder(sessions, cache=settings.cache)
    _verify_decoder(written, source, folder, decoder, settings)
    return written


def _write_fused(written: Written, source: Source, folder: Path, part: Part, settings: Settings) -> Written:
    """Write a decoder with fused operators, or plainly where these do not equal the model."""
    graph, path = _trace_part(part, settings), _path_of(part, folder, settings)
    settings.progress("fusing attention")
    faster = fused(graph, genai.context_length(source.config.get_text_config(decoder=True)))
    if faster is not None:
        written.lossy = [(part, path, faster)]
        settings.progress(f"writing {part.name}")
        try:
            _write_graph(faster, path, settings)
            _verify_decoder(written, source, folder, Decoder([Session.of(path)], one_by_one=True), settings)
        except (tx.NotRepresentable, tx.UnsupportedOp, tx.VerificationFailed) as error:
            written.notes.append(f"written without fused operators: {error.what}")
            written.compared, written.generated = [], []
        else:
            return written
    written.lossy = [(part, path, graph)]
    settings.progress(f"writing {part.name}")
    _write_graph(graph, path, settings)
    _verify_decoder(written, source, folder, Decoder([Session.of(path)]), settings)
    return written


def _verify_decoder(written: Written, source: Source, folder: Path, run: Decoder, settings: Settings) -> None:
    """Compare a decoder with the model on logits and tokens. Raises ``VerificationFailed``."""
    if not settings.verify:
        return
    model, states, (part, _, graph) = source.model, written.states, written.lossy[0]
    settings.progress("comparing the decoder with the model")
    allowed = near(graph, settings.atol, settings.rtol)
    written.compared += compare_logits(model, states, run, part.name, allowed)
    written.generated.append(compare_generation(model, states, run, allowed))
    by_genai = settings.layout.name == "genai" and genai.is_installed()
    padded = not has_window(source.config) and all(PAST in state.axes.values() for state in states)
    if by_genai:
        settings.progress("generating by onnxruntime-genai")
        padded = padded and takes_inner_padding(model, prompts_for(model.config))
        written.generated.append(_compare_genai(model, folder, allowed, padded))
    for adapter in written.adapters:
        settings.progress(f"comparing the adapter {adapter.name} with the model")
        with active(adapter, folder) as options, merged(model, adapter):
            adapted = replace(run, runs=[replace(each, options=options) for each in run.runs])
            written.compared += compare_logits(model, states, adapted, f"{part.name} with {adapter.name}", allowed)
            if by_genai:
                written.generated.append(_compare_genai(model, folder, allowed, padded, adapter))


def _write_encoder_decoder(source: Source, folder: Path, settings: Settings) -> Written:
    parts = encoder_decoder_parts(source)
    settings.layout.check(source.config.model_type, parts.states)
    written, runs, tolerances = Written(states=parts.states), [], []
    for part in parts[:3]:
        path, graph = write_part(part, folder, settings)
        written.graphs[str(path.relative_to(folder))] = list(part.examples)
        written.lossy.append((part, path, graph))
        runs.append(Session.of(path))
        tolerances.append(near(graph, settings.atol, settings.rtol))
    write_configs(source, folder)
    if settings.verify:
        settings.progress("comparing the graphs with the model")
        allowed = max(tolerances, key=lambda each: each.absolute)
        written.compared += compare_steps(source, parts, runs, allowed)
        written.generated.append(compare_texts(source, parts, runs, allowed))
    return written


def _write_vision_decoder(source: Source, folder: Path, settings: Settings) -> Written:
    if settings.layout.name != "onnxruntime":
        raise NotRepresentable(
            f"{settings.layout.name} is not supported for vision-language decoders", do="use --layout onnxruntime"
        )
    parts = vision_language_parts(source)
    written, runs, tolerances = Written(states=parts.states), [], []
    for part in parts[:3]:
        path, graph = write_part(part, folder, settings)
        written.graphs[str(path.relative_to(folder))] = list(part.examples)
        written.lossy.append((part, path, graph))
        runs.append(Session.of(path))
        tolerances.append(near(graph, settings.atol, settings.rtol))
    write_configs(source, folder)
    if settings.verify:
        settings.progress("comparing the graphs with the model")
        allowed = max(tolerances, key=lambda each: each.absolute)
        for each in compare_images(source, parts, runs, allowed):
            (written.generated if isinstance(each, Generated) else written.compared).append(each)
    return written


def _write_call(source: Source, folder: Path, settings: Settings) -> Written:
    settings.layout.check(source.config.model_type, ())
    part = call_part(source)
    path, graph = write_part(part, folder, settings)
    written = Written({str(path.relative_to(folder)): list(part.examples)}, lossy=[(part, path, graph)])
    write_configs(source, folder)
    settings.layout.write(source, folder, written.graphs, ())
    if settings.verify:
        settings.progress(f"comparing {part.name} with the model")
        allowed = near(graph, settings.atol, settings.rtol)
        written.compared += compare_calls(source, part, Session.of(path), allowed)
    return written


def _compare_genai(model: Any, folder: Path, allowed: Any, padded: bool, adapter: Adapter | None = None) -> Generated:
    """Compare greedy tokens of onnxruntime-genai, which pads prompts on the right.

    Unless ``padded``, prompts run one at a time, since sliding windows and convolutions would include the padding.
    """
    prompts, steps = prompts_for(model.config), steps_for(model.config)
    expected = generated_by_model(model, prompts, steps)
    batches = [prompts] if padded else [prompts.single(row) for row in range(len(prompts.tokens))]
    file = None if adapter is None else adapter.file_in(folder)
    actual = np.concatenate([genai.generated_by_genai(folder, each, steps, file) for each in batches])
    runtime = "onnxruntime-genai" if adapter is None else f"onnxruntime-genai with {adapter.name}"
    runtime = runtime if padded else f"{runtime}, one prompt at a time"
    return compare_tokens(runtime, actual, expected, logits_after(model, prompts, expected), allowed)
