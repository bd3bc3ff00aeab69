"""Export of a model as a folder for a runtime."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from tenonnx.extend import InvalidCall
from tenonnx_transformers.calls import call_part
from tenonnx_transformers.data_files import check_size
from tenonnx_transformers.decoders import decoder_parts, decoder_states
from tenonnx_transformers.encoder_decoders import encoder_decoder_parts
from tenonnx_transformers.layouts import LAYOUTS, Layout
from tenonnx_transformers.parts import Part
from tenonnx_transformers.precisions import check_dtype, check_precision
from tenonnx_transformers.report import Report
from tenonnx_transformers.sources import Source, source_of
from tenonnx_transformers.static_cache import StaticCache
from tenonnx_transformers.tasks import DECODER, ENCODER_DECODER, VISION_DECODER
from tenonnx_transformers.vision_language import vision_language_parts
from tenonnx_transformers.writing import Settings, write_model

if TYPE_CHECKING:
    import torch


def export(
    model: torch.nn.Module | str | os.PathLike[str],
    out: str | os.PathLike[str],
    *,
    task: str | None = None,
    layout: str = "onnxruntime",
    precision: str = "fp32",
    max_shard: int | None = None,
    adapters: Sequence[str | os.PathLike[str]] = (),
    cache: str | None = None,
    trust: bool = False,
    verify: bool = True,
    atol: float | None = None,
    rtol: float | None = None,
    progress: Callable[[str], object] = lambda what: None,
    opset_version: int | None = None,
    **fields: Any,
) -> Report:
    """Export a transformers model (a module, or a folder written by ``save_pretrained``) as a folder of ONNX files.

    - ``task``: as in pipelines of transformers; by default that of the architecture;
    - ``layout``: the runtime that reads the folder: ``onnxruntime``, ``genai`` or ``transformers.js``;
    - ``precision``: ``fp32``, ``fp16``, ``bf16``, or for weights only ``int8``, ``int4``
      or ``bnb4``;
    - ``max_shard``: the maximum size of a file of weights, in bytes; a single tensor can exceed it;
    - ``adapters``: folders of LoRA adapters as PEFT writes them, which become ``.onnx_adapter`` files of their names;
    - ``cache``: ``static=2048`` writes graphs for prompts and for single tokens with a cache of that length, in which
      they write at ``cache_position``; ``static=2048,prefill=128`` also fixes all other sizes;
    - ``trust``: allows running code of the folder and reading pickles;
    - ``verify``: compares the files with the model before anything is written to ``out``, on logits at several sizes
      and on greedy tokens. Lower precisions are compared with the float32 graph;
    - ``atol``, ``rtol``: replace the tolerances;
    - ``progress``: is called with the name of each step;
    - ``opset_version``: 17 by default; with a ``target``, the target determines the default;
    - ``fields``: further fields of ``tx.ExportConfig``, such as ``target``.

    Raises ``InvalidCall`` for an unknown task, layout or precision, and for folders that need ``trust``;
    ``InvalidModel`` for broken folders; ``NotRepresentable`` for models and precisions that ONNX or the layout does not
    support; ``VerificationFailed`` if logits or tokens differ.
    """
    if layout not in LAYOUTS:
        raise InvalidCall("unknown layout", given=repr(layout), available=", ".join(LAYOUTS))
    check_precision(precision)
    check_dtype(precision, layout)
    check_size(max_shard)
    place = Path(out)
    if place.is_file() or place.suffix == ".onnx":
        raise InvalidCall("the output of a model folder is not a folder", given=str(out), do="give a folder: -o out")
    chosen: Layout = LAYOUTS[layout]
    if fields.get("target") is None:
        fields["opset_version"] = 17 if opset_version is None else opset_version
    elif opset_version is not None:
        fields["opset_version"] = opset_version
    settings = Settings(
        chosen,
        fields,
        verify,
        atol,
        rtol,
        progress,
        precision,
        max_shard,
        [Path(each) for each in adapters],
        None if cache is None else StaticCache.of(cache),
    )
    place.parent.mkdir(parents=True, exist_ok=True)
    with (
        TemporaryDirectory(prefix=f".{place.name}-", dir=place.parent) as temporary,
        TemporaryDirectory(prefix=f".{place.name}-", dir=place.parent, ignore_cleanup_errors=True) as scratch,
    ):
        progress("reading the model")
        source = source_of(model, task, trust, Path(scratch))
        report = write_model(source, Path(temporary), settings)
        files = sorted(str(path.relative_to(temporary)) for path in Path(temporary).rglob("*") if path.is_file())
        for name in files:
            (place / name).parent.mkdir(parents=True, exist_ok=True)
            for stale in (place / name).parent.glob(f"{Path(name).name}{chosen.data_suffix}*"):
                stale.unlink()  # data of an earlier export
        for name in files:
            (Path(temporary) / name).replace(place / name)
        files = sorted({*files, *chosen.finish(place)})
    return Report(
        place,
        source.task.name,
        layout,
        list(report.graphs),
        files,
        report.compared,
        report.generated,
        report.losses,
        report.notes,
    )


def parts_of(source: Source) -> list[Part]:
    """Return the parts of a model, each of which becomes one graph, according to its task."""
    if source.task.kind == DECODER:
        return decoder_parts(source.model, decoder_states(source.model))
    if source.task.kind == ENCODER_DECODER:
        return list(encoder_decoder_parts(source)[:3])
    if source.task.kind == VISION_DECODER:
        return list(vision_language_parts(source)[:3])
    return [call_part(source)]
