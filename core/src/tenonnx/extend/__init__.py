"""What a package of operators imports: the public face of the op protocol.

Other kinds of packages have doors of their own beside it, and need nothing behind them: ``tenonnx.extend.transforms``,
``.backends``, ``.formats``, ``.commands``, ``.testing``, and ``.symbolic`` for arithmetic on symbolic dims.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from tenonnx import limits
from tenonnx.backend.threads import in_parts
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
    UnsupportedOp,
    counted,
    installing,
)
from tenonnx.graph.constants import ArrayConstant, Constant, Contents, RowConstant, chunks_of, rows_of
from tenonnx.graph.definitions import Operators, operators
from tenonnx.graph.dtypes import DType
from tenonnx.graph.graph import Graph, Node, Value
from tenonnx.graph.symbolic import Dim, Expr, differ
from tenonnx.graph.types import (
    MapType,
    OptionalType,
    SequenceType,
    Shape,
    SparseTensorType,
    TensorType,
    Type,
    join_types,
)
from tenonnx.op.binding import known_op
from tenonnx.op.build import subgraph
from tenonnx.op.call import constant, dims, elements, interpreting, is_learned, static, vector
from tenonnx.op.contents import Known
from tenonnx.op.dtypes import load_dtypes
from tenonnx.op.families import broadcast_types, elementwise, same_type
from tenonnx.op.inline import inline
from tenonnx.op.kinds import Kind, rule_kind
from tenonnx.op.op import REQUIRED, Op, op, primitive
from tenonnx.op.operand import Operand
from tenonnx.op.requirements import Arguments, Requirement
from tenonnx.op.rules import add_rule, find_rule, find_trait, moves_data
from tenonnx.op.signature import Index
from tenonnx.op.subgraphs import subgraph_types
from tenonnx.op.vocabulary import (
    at_least,
    axis,
    broadcasts_to,
    divides,
    dtypes,
    every,
    floats,
    holds,
    integers,
    one_of,
    same_dtype,
    shapes,
    together,
)
from tenonnx.registry.hookspecs import hookimpl
from tenonnx.registry.namespace import flat_namespace
from tenonnx.registry.registry import Registry
from tenonnx.transforms.rewrite import copy_graph

if TYPE_CHECKING:
    from tenonnx.transforms.extract import between
    from tenonnx.transforms.grad import pullback
    from tenonnx.transforms.residuals import Demand, dependents

__all__ = [
    "REQUIRED",
    "Arguments",
    "ArrayConstant",
    "Constant",
    "Contents",
    "DType",
    "Demand",
    "Dim",
    "Expr",
    "FallbackWarning",
    "Graph",
    "Index",
    "InvalidCall",
    "InvalidFeed",
    "InvalidModel",
    "Kind",
    "Known",
    "LimitExceeded",
    "MapType",
    "Node",
    "NotDifferentiable",
    "NotRepresentable",
    "Op",
    "Operand",
    "Operators",
    "OptionalType",
    "PluginError",
    "PluginWarning",
    "Registry",
    "Requirement",
    "RowConstant",
    "SequenceType",
    "Shape",
    "SparseTensorType",
    "TenonnxError",
    "TensorType",
    "Type",
    "TypeMismatch",
    "UnknownType",
    "UnsupportedOp",
    "Value",
    "add_rule",
    "at_least",
    "axis",
    "between",
    "broadcast_types",
    "broadcasts_to",
    "chunks_of",
    "constant",
    "copy_graph",
    "counted",
    "dependents",
    "differ",
    "dims",
    "divides",
    "dtypes",
    "elements",
    "elementwise",
    "every",
    "find_rule",
    "find_trait",
    "flat_namespace",
    "floats",
    "holds",
    "hookimpl",
    "in_parts",
    "inline",
    "installing",
    "integers",
    "interpreting",
    "is_learned",
    "join_types",
    "known_op",
    "limits",
    "load_dtypes",
    "moves_data",
    "one_of",
    "op",
    "operators",
    "primitive",
    "pullback",
    "rows_of",
    "rule_kind",
    "same_dtype",
    "same_type",
    "shapes",
    "static",
    "subgraph",
    "subgraph_types",
    "together",
    "vector",
]


def __getattr__(name: str) -> Any:
    """What gradients of subgraphs are made of stands on transforms, which whoever reads a file need not wait for."""
    if name in ("Demand", "between", "dependents", "pullback"):
        return getattr(import_module("tenonnx.extend.transforms"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
