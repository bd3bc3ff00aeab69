"""The public names, and the forwards from ``Graph`` to the floors above it."""

from __future__ import annotations

from tenonnx.backends.base import Program, compile_graph
from tenonnx.checks.verify import Verification, verify
from tenonnx.errors import (
    InvalidCall,
    InvalidFeed,
    InvalidModel,
    NotDifferentiable,
    NotRepresentable,
    PluginError,
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
    "DType", "ExportConfig", "Graph", "InvalidCall", "InvalidFeed", "InvalidModel", "MapType", "Node",
    "NotDifferentiable", "NotRepresentable", "OptionalType", "PluginError", "Program", "Registry", "Report",
    "SequenceType", "TenonnxError", "TensorType", "TypeMismatch", "UnknownType", "UnsafePath", "UnsupportedOp", "Value",
    "Verification", "VerificationFailed", "decompose", "default_registry", "export", "extract", "fold", "grad", "infer",
    "load", "prune", "retarget", "verify",
]  # fmt: skip


def _run(self: Graph, feeds, backend: str = "auto"):  # type: ignore[no-untyped-def]
    """The outputs for ``feeds``, by name. For many calls, ``compile`` once."""
    return compile_graph(self, backend)(feeds)


def _save(self: Graph, path) -> None:  # type: ignore[no-untyped-def]
    """Write the graph as a native file: safetensors with the graph in its metadata."""
    from tenonnx.formats import native

    native.write(self, path)


def _infer(self: Graph, input_shapes=None) -> Graph:  # type: ignore[no-untyped-def]
    """Give every value its type; ``input_shapes`` are further facts about the inputs. Returns the graph itself."""
    infer(self, input_shapes)
    return self


Graph.run = _run  # type: ignore[method-assign]
Graph.save = _save  # type: ignore[method-assign]
Graph.infer = _infer  # type: ignore[method-assign]
Graph.compile = compile_graph  # type: ignore[method-assign]
Graph.summary = summary  # type: ignore[method-assign]
Graph.extract = extract  # type: ignore[method-assign]
Graph.copy = copy_graph  # type: ignore[method-assign]
