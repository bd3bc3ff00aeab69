"""Conversion of types from and to ``TypeProto``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tenonnx.errors import NotRepresentable
from tenonnx.graph.dtypes import DType
from tenonnx.graph.symbolic import Dim, parse
from tenonnx.graph.types import MapType, OptionalType, SequenceType, SparseTensorType, TensorType, Type

if TYPE_CHECKING:
    import onnx


def read_type(proto: onnx.TypeProto) -> Type | None:
    """The type that a message declares, or None."""
    which = proto.WhichOneof("value")
    if which == "tensor_type":
        tensor = proto.tensor_type
        if not tensor.elem_type:
            return None
        return TensorType(DType(tensor.elem_type), _read_shape(tensor))
    if which == "sparse_tensor_type":
        sparse = proto.sparse_tensor_type
        return SparseTensorType(DType(sparse.elem_type), _read_shape(sparse))
    if which == "sequence_type":
        return SequenceType(read_type(proto.sequence_type.elem_type))
    if which == "optional_type":
        return OptionalType(read_type(proto.optional_type.elem_type))
    if which == "map_type":
        return MapType(DType(proto.map_type.key_type), read_type(proto.map_type.value_type))
    return None


def _read_shape(proto: onnx.TypeProto.Tensor | onnx.TypeProto.SparseTensor) -> tuple[Dim, ...] | None:
    if not proto.HasField("shape"):
        return None
    dims: list[Dim] = []
    for dim in proto.shape.dim:
        which = dim.WhichOneof("value")
        if which == "dim_value":
            dims.append(dim.dim_value if dim.dim_value >= 0 else None)
        else:
            dims.append(parse(dim.dim_param) if which == "dim_param" and dim.dim_param else None)
    return tuple(dims)


def write_type(kind: Type | None, proto: onnx.TypeProto) -> None:
    """Fill a message with a type; nothing is written for an unknown one."""
    match kind:
        case TensorType() | SparseTensorType():
            target = proto.tensor_type if isinstance(kind, TensorType) else proto.sparse_tensor_type
            target.elem_type = int(kind.dtype)
            if kind.shape is not None:
                target.shape.SetInParent()
                for dim in kind.shape:
                    _write_dim(dim, target.shape.dim.add())
        case SequenceType():
            proto.sequence_type.elem_type.SetInParent()
            write_type(kind.element, proto.sequence_type.elem_type)
        case OptionalType():
            proto.optional_type.elem_type.SetInParent()
            write_type(kind.element, proto.optional_type.elem_type)
        case MapType():
            proto.map_type.key_type = int(kind.key)
            write_type(kind.value, proto.map_type.value_type)


def _write_dim(dim: Dim, proto: onnx.TensorShapeProto.Dimension) -> None:
    if isinstance(dim, int):
        if dim >= 1 << 63:
            what = "a dim does not fit in 64 bits"
            raise NotRepresentable(what, given=f"about 2^{dim.bit_length()}", do="leave the type out (tidy=False)")
        proto.dim_value = dim
    elif dim is not None:
        proto.dim_param = str(dim)
