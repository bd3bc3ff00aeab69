"""skl2onnx's types of inputs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
import onnx
from onnx import TensorProto, helper

Dims = Sequence[int | str | None]


class DataType:
    """Base of all types."""

    def __init__(self, shape: Dims | None = None, doc_string: str = "") -> None:
        self.shape = shape
        self.doc_string = doc_string

    def to_onnx_type(self) -> onnx.TypeProto:
        raise NotImplementedError

    def __repr__(self) -> str:
        return f"{type(self).__name__}(shape={self.shape})"

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and list(self.shape or ()) == list(getattr(other, "shape", None) or ())

    __hash__ = None  # type: ignore[assignment]


class TensorType(DataType):
    """Tensors of one element type; a dim is a number, a name, or None if it is dynamic."""

    element: ClassVar[int] = TensorProto.UNDEFINED

    def __init__(
        self,
        shape: Dims | None = None,
        doc_string: str = "",
        denotation: str | None = None,
        channel_denotations: Sequence[str] | None = None,
    ) -> None:
        super().__init__(list(shape) if shape else [], doc_string)
        self.denotation = denotation
        self.channel_denotations = channel_denotations

    def to_onnx_type(self) -> onnx.TypeProto:
        return helper.make_tensor_type_proto(self.element, list(self.shape or ()))


class BooleanTensorType(TensorType):
    element = TensorProto.BOOL


class FloatTensorType(TensorType):
    element = TensorProto.FLOAT


class DoubleTensorType(TensorType):
    element = TensorProto.DOUBLE


class Float16TensorType(TensorType):
    element = TensorProto.FLOAT16


class StringTensorType(TensorType):
    element = TensorProto.STRING


class Int8TensorType(TensorType):
    element = TensorProto.INT8


class Int16TensorType(TensorType):
    element = TensorProto.INT16


class Int32TensorType(TensorType):
    element = TensorProto.INT32


class Int64TensorType(TensorType):
    element = TensorProto.INT64


class UInt8TensorType(TensorType):
    element = TensorProto.UINT8


class UInt16TensorType(TensorType):
    element = TensorProto.UINT16


class UInt32TensorType(TensorType):
    element = TensorProto.UINT32


class UInt64TensorType(TensorType):
    element = TensorProto.UINT64


class Complex64TensorType(TensorType):
    element = TensorProto.COMPLEX64


class Complex128TensorType(TensorType):
    element = TensorProto.COMPLEX128


class FloatType(FloatTensorType):
    """A float32 scalar, as a tensor of shape [1, 1]."""

    def __init__(self, doc_string: str = "") -> None:
        super().__init__([1, 1], doc_string)


class DoubleType(DoubleTensorType):
    """A float64 scalar, as a tensor of shape [1, 1]."""

    def __init__(self, doc_string: str = "") -> None:
        super().__init__([1, 1], doc_string)


class Int64Type(Int64TensorType):
    """An int64 scalar, as a tensor of shape [1, 1]."""

    def __init__(self, doc_string: str = "") -> None:
        super().__init__([1, 1], doc_string)


class StringType(StringTensorType):
    """A string, as a tensor of shape [1, 1]."""

    def __init__(self, doc_string: str = "") -> None:
        super().__init__([1, 1], doc_string)


class SequenceType(DataType):
    """Sequences of another type."""

    def __init__(self, element_type: DataType, shape: Dims | None = None, doc_string: str = "") -> None:
        super().__init__(shape, doc_string)
        self.element_type = element_type

    def to_onnx_type(self) -> onnx.TypeProto:
        return helper.make_sequence_type_proto(self.element_type.to_onnx_type())


class DictionaryType(DataType):
    """Maps from one type to another."""

    def __init__(
        self, key_type: TensorType, value_type: DataType, shape: Dims | None = None, doc_string: str = ""
    ) -> None:
        super().__init__(shape, doc_string)
        self.key_type = key_type
        self.value_type = value_type

    def to_onnx_type(self) -> onnx.TypeProto:
        return helper.make_map_type_proto(self.key_type.element, self.value_type.to_onnx_type())


_BY_NUMPY: dict[str, type[TensorType]] = {
    "float32": FloatTensorType,
    "float64": DoubleTensorType,
    "float16": Float16TensorType,
    "int8": Int8TensorType,
    "int16": Int16TensorType,
    "int32": Int32TensorType,
    "int64": Int64TensorType,
    "uint8": UInt8TensorType,
    "uint16": UInt16TensorType,
    "uint32": UInt32TensorType,
    "uint64": UInt64TensorType,
    "bool": BooleanTensorType,
    "category": Int64TensorType,
}


def type_of_dtype(dtype: Any, shape: Dims) -> TensorType:
    """The tensor type for a numpy or pandas dtype; ``StringTensorType`` for dtypes that are not numeric."""
    return _BY_NUMPY.get(str(dtype).lower(), StringTensorType)(shape)


def guess_data_type(type_: Any, shape: Dims | None = None) -> list[tuple[str, TensorType]]:
    """Names and types of the columns of a table, or of an array, which is named ``input``.

    Raises ``TypeError`` for anything else.
    """
    if hasattr(type_, "columns") and hasattr(type_, "dtypes"):
        return [(str(n), type_of_dtype(dtype, [None, 1])) for n, dtype in zip(type_.columns, type_.dtypes, strict=True)]
    if hasattr(type_, "name") and hasattr(type_, "dtype") and hasattr(type_, "index"):
        return [(str(type_.name), type_of_dtype(type_.dtype, [None, 1]))]
    if hasattr(type_, "shape") and hasattr(type_, "dtype"):
        return [("input", type_of_dtype(type_.dtype, list(shape or type_.shape)))]
    raise TypeError(f"Type {type(type_)} cannot be converted into a DataType")


def guess_numpy_type(data_type: Any) -> Any:
    """The numpy dtype of a type of skl2onnx or Python. Raises ``NotImplementedError`` for other types."""
    if isinstance(data_type, StringTensorType) or data_type is str:
        return np.str_
    if isinstance(data_type, TensorType):
        return helper.tensor_dtype_to_np_dtype(data_type.element).type
    if data_type is bool:
        return np.bool_
    if isinstance(data_type, type) and issubclass(data_type, np.generic):
        return data_type
    raise NotImplementedError(f"Unsupported data_type '{data_type}'.")


def guess_proto_type(data_type: Any) -> int:
    """The ONNX element type of a type of skl2onnx. Raises ``NotImplementedError`` for other types."""
    if not isinstance(data_type, TensorType):
        raise NotImplementedError(f"Unsupported data_type '{data_type}'.")
    return data_type.element


def guess_tensor_type(data_type: Any) -> TensorType:
    """The type of results computed from a type: double for double, float for all others."""
    return DoubleTensorType() if isinstance(data_type, DoubleTensorType) else FloatTensorType()
