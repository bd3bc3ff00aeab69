"""What the floors above do for graphs, by name: the one place where this floor knows of them."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import Any

#: Each is imported when it is first asked for.
PLACES = {
    "building": "tenonnx.op.build",
    "compile_graph": "tenonnx.backend.compiling",
    "compose": "tenonnx.op.editing",
    "copy_graph": "tenonnx.transforms.rewrite",
    "default_registry": "tenonnx.registry.registry",
    "editing": "tenonnx.op.editing",
    "extract": "tenonnx.transforms.extract",
    "infer": "tenonnx.op.graph_inference",
    "insert": "tenonnx.op.editing",
    "insert_after": "tenonnx.op.editing",
    "pickled": "tenonnx.formats.export",
    "remove": "tenonnx.op.editing",
    "replace": "tenonnx.op.editing",
    "save": "tenonnx.formats.native",
    "summary": "tenonnx.graph.summary",
    "to_dot": "tenonnx.graph.drawing",
    "to_html": "tenonnx.graph.drawing",
    "to_proto": "tenonnx.formats.export",
    "to_svg": "tenonnx.graph.drawing",
}


@cache
def above(name: str) -> Any:
    """The function of that name from a floor above."""
    return getattr(import_module(PLACES[name]), name)
