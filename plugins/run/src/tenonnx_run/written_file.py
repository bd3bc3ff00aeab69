"""The file of a graph, so that verification runs the written bytes rather than the graph read back from them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from tenonnx.graph.graph import Graph

_written: ContextVar[tuple[Graph, str] | None] = ContextVar("tenonnx_written_file", default=None)


@contextmanager
def written_to(graph: Graph, path: str | os.PathLike[str]) -> Iterator[None]:
    """Register, within the block, the ONNX file of this graph for ``file_of``."""
    token = _written.set((graph, os.fspath(path)))
    try:
        yield
    finally:
        _written.reset(token)


def file_of(graph: Graph) -> str | None:
    """The registered ONNX file of this graph object, or None."""
    known = _written.get()
    return known[1] if known is not None and known[0] is graph else None
