"""Front end: ``tx.load(folder)`` for transformers models that are exported as a single graph."""

from __future__ import annotations

import os

from tenonnx.extend import Graph, NotRepresentable, Registry
from tenonnx_transformers.exporting import parts_of
from tenonnx_transformers.sources import quiet, source_of


def read(
    source: str | os.PathLike[str], *, registry: Registry | None = None, task: str | None = None, trust: bool = False
) -> Graph:
    """Read a folder written by ``save_pretrained`` as a graph, without verification.

    Raises ``NotRepresentable`` for models that need several graphs, and further errors as ``export`` does.
    """
    model = source_of(source, task, trust)
    with quiet():
        parts = parts_of(model)
    if len(parts) > 1:
        raise NotRepresentable(
            "the model is exported as several graphs, not one",
            given=", ".join(part.name for part in parts),
            do="write all of them to a folder: tenonnx convert --layout onnxruntime, or tenonnx_transformers.export",
        )
    with quiet():
        return parts[0].graph()
