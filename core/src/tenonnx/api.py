"""The public names."""

from __future__ import annotations

from tenonnx import limits
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
from tenonnx.graph.types import MapType, OptionalType, SequenceType, TensorType
from tenonnx.graph.values import Node, Value
from tenonnx.op.graph_inference import infer
from tenonnx.registry.registry import Registry, default_registry
from tenonnx.transforms.compose import compose
from tenonnx.transforms.costs import costs
from tenonnx.transforms.decompose import decompose
from tenonnx.transforms.dims import fix_shapes, free_dims
from tenonnx.transforms.extract import extract
from tenonnx.transforms.fold import fold
from tenonnx.transforms.fuse import fuse
from tenonnx.transforms.grad import grad
from tenonnx.transforms.precision import lower_precision
from tenonnx.transforms.prune import prune
from tenonnx.transforms.retarget import retarget
from tenonnx.transforms.simplify import simplify

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
    "compose",
    "costs",
    "decompose",
    "default_registry",
    "export",
    "extract",
    "fix_shapes",
    "fold",
    "free_dims",
    "fuse",
    "grad",
    "infer",
    "limits",
    "load",
    "lower_precision",
    "prune",
    "retarget",
    "simplify",
    "verify",
]
