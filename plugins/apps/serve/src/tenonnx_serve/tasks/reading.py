"""Loading the model of a job."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tenonnx import Graph
from tenonnx.tools import weight_bytes
from tenonnx_cli.tools import Made, is_made, load_made, load_model


def read(source: str, reading: Mapping[str, Any] | None = None, seed: int = 0) -> Made:
    """Load the model of a path or FILE.py:FUNCTION, the latter with the ``reading`` options of the server."""
    if not is_made(source):
        return Made(load_model(source), None)
    options = dict(reading or {})
    examples: Sequence[str] = options.pop("examples", ())
    return load_made(source, examples, seed, options)


def size(source: str, graph: Graph) -> int | None:
    """The size of a model's file with its external data, in bytes; None for a model made by a function."""
    if is_made(source):
        return None
    path, weights = Path(source), weight_bytes(graph)
    file = sum(each.stat().st_size for each in path.rglob("*")) if path.is_dir() else path.stat().st_size
    return file + weights if weights > file else file
