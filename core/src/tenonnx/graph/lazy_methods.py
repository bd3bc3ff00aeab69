"""Lazy imports of functions of higher layers for graphs: the only module of core that refers upward."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import Any

from tenonnx.graph.gc_paused import gc_paused

#: The module of each function. Extensions of other packages are found by ``extension``.
PLACES = {
    "apply_graph": "tenonnx.transforms.editing",
    "assign": "tenonnx.transforms.editing",
    "building": "tenonnx.op.build",
    "copy_graph": "tenonnx.transforms.rewrite",
    "default_registry": "tenonnx.registry.registry",
    "editing": "tenonnx.transforms.editing",
    "extension": "tenonnx.registry.extensions",
    "extensions": "tenonnx.registry.extensions",
    "extract": "tenonnx.transforms.extract",
    "find_extension": "tenonnx.registry.extensions",
    "html_of": "tenonnx.registry.extensions",
    "infer": "tenonnx.op.graph_inference",
    "insert": "tenonnx.transforms.editing",
    "insert_after": "tenonnx.transforms.editing",
    "missing": "tenonnx.registry.extensions",
    "pickled": "tenonnx.formats.onnx.messages",
    "provider": "tenonnx.registry.hints",
    "remove": "tenonnx.transforms.editing",
    "rename": "tenonnx.transforms.editing",
    "replace": "tenonnx.transforms.editing",
    "save": "tenonnx.formats.onnx.messages",
    "set_attributes": "tenonnx.transforms.assign",
    "set_data": "tenonnx.transforms.assign",
    "set_graph_inputs": "tenonnx.transforms.assign",
    "set_inputs": "tenonnx.transforms.assign",
    "set_node_name": "tenonnx.transforms.assign",
    "set_op": "tenonnx.transforms.assign",
    "set_type": "tenonnx.transforms.assign",
    "set_version": "tenonnx.transforms.assign",
    "summary": "tenonnx.transforms.summary",
}


@cache
def lazy_import(name: str) -> Any:
    """The function of that name, imported on first use."""
    with gc_paused():  # imported modules stay, so collecting is useless
        return getattr(import_module(PLACES[name]), name)
