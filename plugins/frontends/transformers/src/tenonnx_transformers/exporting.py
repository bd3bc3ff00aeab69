"""Export of a model as the folder that a runtime serves."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from tenonnx.extend import InvalidCall
from tenonnx_transformers.calls import call_part
from tenonnx_transformers.decoders import decoder_parts, decoder_states
from tenonnx_transformers.encoder_decoders import encoder_decoder_parts
from tenonnx_transformers.layouts import LAYOUTS, Layout
from tenonnx_transformers.parts import Part
from tenonnx_transformers.precisions import check_precision
from tenonnx_transformers.report import Report
from tenonnx_transformers.sources import Source, source_of
from tenonnx_transformers.tasks import DECODER, ENCODER_DECODER
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
    trust: bool = False,
    verify: bool = True,
    atol: float | None = None,
    rtol: float | None = None,
    progress: Callable[[str], object] = lambda what: None,
    opset_version: int | None = None,
    **fields: Any,
) -> Report:
    """Write a model of transformers, a module or the folder of ``save_pretrained``, as a folder of ONNX files.

    ``task`` is by default that of the architecture. ``layout`` says for which runtime the folder is: ``onnxruntime``,
    ``genai`` or ``transformers.js``. ``precision`` is ``fp32``, ``fp16``, ``bf16``, or that of weights, ``int8`` or
    ``int4``; the graph in float32 is compared with the model, and its logits with those in the precision. ``trust``
    runs code of the folder and reads pickles. Files are compared with the model before anything is written to ``out``,
    on logits at several sizes and on greedy tokens; ``atol`` and ``rtol`` replace the tolerances. ``progress`` is
    called with the name of each step. ``opset_version`` is 17 by default, and ``fields`` are those of
    ``tx.ExportConfig``, such as ``target``.

    Raises ``InvalidCall`` for an unknown task, layout or precision and for folders that need trust, ``InvalidModel``
    for broken ones, ``NotRepresentable`` for what a layout or ONNX cannot hold, ``VerificationFailed`` where numbers or
    tokens differ.
    """
    if layout not in LAYOUTS:
        raise InvalidCall("unknown layout", given=repr(layout), available=", ".join(LAYOUTS))
    check_precision(precision)
    place = Path(out)
    if place.is_file() or place.suffix == ".onnx":
        raise InvalidCall("the output of a model folder is not a folder", given=str(out), do="give a folder: -o out")
    progress("reading the model")
    source = source_of(model, task, trust)
    chosen: Layout = LAYOUTS[layout]
    if fields.get("target") is None:
        fields["opset_version"] = 17 if opset_version is None else opset_version
    elif opset_version is not None:
        fields["opset_version"] = opset_version
    settings = Settings(chosen, fields, verify, atol, rtol, progress, precision)
    place.parent.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(prefix=f".{place.name}-", dir=place.parent) as made:
        report = write_model(source, Path(made), settings)
        files = sorted(str(path.relative_to(made)) for path in Path(made).rglob("*") if path.is_file())
        for name in files:
            (place / name).parent.mkdir(parents=True, exist_ok=True)
            (Path(made) / name).replace(place / name)
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
    """The graphs of a model, by its task."""
    if source.task.kind == DECODER:
        return decoder_parts(source.model, decoder_states(source.model))
    if source.task.kind == ENCODER_DECODER:
        return list(encoder_decoder_parts(source)[:3])
    return [call_part(source)]
