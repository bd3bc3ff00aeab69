"""What a package of operators imports: the public face of the op protocol.

Arithmetic on symbolic dims is in ``tenonnx.graph.symbolic``. What transforms, backends and commands are made of
(``Rewriter``, ``Builder``, ``bind`` ...) is imported from the modules that define it.
"""

from tenonnx import limits
from tenonnx.errors import InvalidCall, InvalidModel, NotDifferentiable, TypeMismatch, UnknownType, UnsupportedOp
from tenonnx.graph.dtypes import DType
from tenonnx.graph.graph import Graph
from tenonnx.graph.symbolic import Dim, Expr, differ
from tenonnx.graph.types import MapType, OptionalType, SequenceType, Shape, SparseTensorType, TensorType, Type
from tenonnx.graph.values import Constant, Value, operator
from tenonnx.op.build import subgraph
from tenonnx.op.call import constant, dims, elements, static, vector
from tenonnx.op.dtypes import load_dtypes
from tenonnx.op.families import broadcast_types, elementwise, same_type
from tenonnx.op.infer import Known
from tenonnx.op.inline import inline
from tenonnx.op.op import REQUIRED, Op, op, primitive
from tenonnx.op.requirements import (
    Requirement,
    at_least,
    axis,
    broadcasts_to,
    divides,
    dtypes,
    floats,
    holds,
    integers,
    one_of,
    same_dtype,
    shapes,
    together,
)
from tenonnx.op.signature import Index
from tenonnx.op.subgraphs import subgraph_types
from tenonnx.registry.hookspecs import hookimpl
from tenonnx.registry.namespace import flat_namespace
from tenonnx.transforms.extract import between
from tenonnx.transforms.grad import pullback
from tenonnx.transforms.residuals import Demand, dependents

__all__ = [
    "REQUIRED",
    "Constant",
    "DType",
    "Demand",
    "Dim",
    "Expr",
    "Graph",
    "Index",
    "InvalidCall",
    "InvalidModel",
    "Known",
    "MapType",
    "NotDifferentiable",
    "Op",
    "OptionalType",
    "Requirement",
    "SequenceType",
    "Shape",
    "SparseTensorType",
    "TensorType",
    "Type",
    "TypeMismatch",
    "UnknownType",
    "UnsupportedOp",
    "Value",
    "at_least",
    "axis",
    "between",
    "broadcast_types",
    "broadcasts_to",
    "constant",
    "dependents",
    "differ",
    "dims",
    "divides",
    "dtypes",
    "elements",
    "elementwise",
    "flat_namespace",
    "floats",
    "holds",
    "hookimpl",
    "inline",
    "integers",
    "limits",
    "load_dtypes",
    "one_of",
    "op",
    "operator",
    "primitive",
    "pullback",
    "same_dtype",
    "same_type",
    "shapes",
    "static",
    "subgraph",
    "subgraph_types",
    "together",
    "vector",
]
