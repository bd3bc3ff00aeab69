"""The public names, and the forwards from ``Graph`` to the floors above it."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from os import PathLike
from typing import Any

from tenonnx import limits
from tenonnx.backend.base import compile_graph
from tenonnx.checks.verify import Verification, verify
from tenonnx.errors import (
    FallbackWarning,
    InvalidCall,
    InvalidFeed,
    InvalidModel,
    LimitExceeded,
    NotDifferentiable,
    NotRepresentable,
    PluginError,
    PluginWarning,
    TenonnxError,
    TypeMismatch,
    UnknownType,
    UnsafePath,
    UnsupportedOp,
    VerificationFailed,
)
from tenonnx.formats.export import ExportConfig, Report, export
from tenonnx.formats.loaders import load
from tenonnx.graph.dtypes import DType
from tenonnx.graph.graph import Graph
from tenonnx.graph.program import Program
from tenonnx.graph.summary import summary
from tenonnx.graph.types import MapType, OptionalType, SequenceType, TensorType
from tenonnx.graph.values import Node, Value
from tenonnx.op.graph_inference import infer
from tenonnx.registry.registry import Registry, default_registry
from tenonnx.transforms.decompose import decompose
from tenonnx.transforms.extract import extract
from tenonnx.transforms.fold import fold
from tenonnx.transforms.grad import grad
from tenonnx.transforms.prune import prune
from tenonnx.transforms.retarget import retarget
from tenonnx.transforms.rewrite import copy_graph

__all__ = [
    "DType",
    "ExportConfig",
    "FallbackWarning",
    "Graph",
    "InvalidCall",
    "InvalidFeed",
    "InvalidModel",
    "LimitExceeded",
    "MapType",
    "Node",
    "NotDifferentiable",
    "NotRepresentable",
    "OptionalType",
    "PluginError",
    "PluginWarning",
    "Program",
    "Registry",
    "Report",
    "SequenceType",
    "TenonnxError",
    "TensorType",
    "TypeMismatch",
    "UnknownType",
    "UnsafePath",
    "UnsupportedOp",
    "Value",
    "Verification",
    "VerificationFailed",
    "decompose",
    "default_registry",
    "export",
    "extract",
    "fold",
    "grad",
    "infer",
    "limits",
    "load",
    "prune",
    "retarget",
    "verify",
]


def _run(self: Graph, feeds: Mapping[str, Any], backend: str = "auto") -> dict[str, Any]:
    """The outputs for ``feeds``, by name. For many calls, ``compile`` once."""
    return compile_graph(self, backend)(feeds)


def _save(self: Graph, path: str | PathLike[str], *, overwrite: bool = False) -> None:
    """Write the graph as a native file ``*.safetensors``; ``overwrite`` replaces a read-only file, too."""
    if not os.fspath(path).lower().endswith(".safetensors"):
        raise InvalidCall(
            "a native file is called *.safetensors", given=os.fspath(path), do="tenonnx.export(graph, path) writes ONNX"
        )
    from tenonnx.formats import native

    native.write(self, path, overwrite=overwrite)


def _infer(self: Graph, input_shapes: Mapping[str, Sequence[int | str | None]] | None = None) -> Graph:
    """Give every value its type; ``input_shapes`` are further facts about the inputs. Returns the graph itself."""
    infer(self, input_shapes)
    return self


for _name, _function in {
    "run": _run,
    "save": _save,
    "infer": _infer,
    "compile": compile_graph,
    "summary": summary,
    "extract": extract,
    "copy": copy_graph,
}.items():
    setattr(Graph, _name, _function)
