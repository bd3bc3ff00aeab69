"""Tensors of ONNX messages as static contents, decoded on first use."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tenonnx import limits
from tenonnx.errors import InvalidModel
from tenonnx.formats.external import ExternalFiles, Region
from tenonnx.formats.onnx import proto as onnx
from tenonnx.formats.onnx.proto import TensorProto
from tenonnx.graph.constants import Constant, Contents
from tenonnx.graph.dtypes import DType
from tenonnx.graph.types import TensorType
from tenonnx.op.binding import UNFORESEEN

#: Initializers by their names in the file, separate from the message so that they can be streamed.
Initializers = list[tuple[str, Constant]]

#: Maximum number of elements that a tensor may declare, so that products of dims cannot overflow.
MAXIMUM_ELEMENTS = 1 << 48


class TensorContents(Contents):
    """Contents of a ``TensorProto``: inline, or in a ``region`` of an external file that is mapped on first use.

    ``raw`` holds the bytes of a large tensor that were removed from its message.
    """

    __slots__ = ("_array", "proto", "raw", "region", "type")

    def __init__(self, proto: TensorProto, files: ExternalFiles | None = None, raw: memoryview | None = None) -> None:
        self.proto = proto
        self._array: np.ndarray[Any, Any] | None = None
        self.type = tensor_type(proto)
        self.region = self._region(files) if proto.data_location == TensorProto.EXTERNAL else None
        self.raw = raw
        if raw is not None and (self.region is not None or self.type.dtype is DType.string or len(raw) != self.nbytes):
            proto.raw_data, self.raw = bytes(raw), None  # decoding the message reports the error

    @property
    def nbytes(self) -> int:
        return packed_bytes(self.type)

    @property
    def is_external(self) -> bool:
        return self.region is not None

    @property
    def is_raw_outside(self) -> bool:
        """Whether the bytes are not in the message."""
        return self.region is not None or self.raw is not None

    def _region(self, files: ExternalFiles | None) -> Region:
        entries = {entry.key: entry.value for entry in self.proto.external_data}
        where = files if files is not None else ExternalFiles(None)
        name = self.proto.name
        region = where.region(entries.get("location", ""), entries.get("offset"), entries.get("length"), tensor=name)
        if self.type.dtype is DType.string:
            raise InvalidModel(f'tensor "{name}": strings are in external data, which ONNX does not allow')
        if region.length != self.nbytes:
            raise InvalidModel(
                f'external tensor "{name}" does not have {self.nbytes} bytes, as many as {self.type}',
                given=f"{region.length} bytes",
            )
        return region

    def array(self) -> np.ndarray[Any, Any]:
        if self._array is None:
            try:
                if self.region is not None:
                    array = from_raw(self.region.view(), self.type)
                elif self.type.dtype is DType.string:
                    array = self._texts()
                elif self.raw is not None:
                    array = from_raw(self.raw, self.type)
                elif self.proto.HasField("raw_data"):
                    array = from_raw(memoryview(self.proto.raw_data), self.type)
                else:
                    from onnx import numpy_helper  # imported lazily, as few tensors need it

                    array = numpy_helper.to_array(self.proto)
                    self._check_range(array)
            except UNFORESEEN as error:
                raise _malformed(self.proto.name, self.type, error) from error
            array = array.view()
            array.flags.writeable = False
            self._array = array
        return self._array

    def _texts(self) -> np.ndarray[Any, Any]:
        """Decode strings to an object array; numpy's string arrays would pad all to the longest."""
        texts = self.proto.string_data
        array = np.empty(len(texts), object)
        array[:] = [text.decode("utf-8") for text in texts]
        return array.reshape(self.proto.dims)

    def _check_range(self, array: np.ndarray[Any, Any]) -> None:
        """Raise ``InvalidModel`` if an element of int32_data exceeds the range of a smaller integer type."""
        dtype, stored = self.type.dtype, self.proto.int32_data
        if stored and dtype.is_integer and dtype.bits in (8, 16):
            wrong = np.asarray(stored) != array.reshape(-1)
            if wrong.any():
                raise InvalidModel(
                    f'tensor "{self.proto.name}" holds numbers out of the range of {dtype}',
                    given=str(np.asarray(stored)[wrong][:3].tolist()),
                )

    def rows(self, start: int, stop: int) -> np.ndarray[Any, Any]:
        """Read rows; those of an external tensor are read from the file each time, neither mapped nor cached."""
        dims, bits = static_dims(self), self.type.dtype.bits
        if self.region is None or self._array is not None or not dims:
            return self.array()[start:stop]
        each = math.prod(dims[1:])
        first, last = start * each, min(stop, dims[0]) * each
        begin, end = first * bits // 8, -(-last * bits // 8)
        raw = self.region.part(begin, end - begin).read()
        before = first - begin * 8 // bits
        flat = from_raw(raw, TensorType(self.type.dtype, (before + last - first,)))
        return flat[before:].reshape(-1, *dims[1:]) if each else self.array()[start:stop]


class MappedContents(Contents):
    """Packed contents of a tensor in a range of a file, mapped on first use."""

    __slots__ = ("_array", "region", "type")

    def __init__(self, kind: TensorType, region: Region) -> None:
        self.type = kind
        self.region = region
        self._array: np.ndarray[Any, Any] | None = None

    @property
    def nbytes(self) -> int:
        return self.region.length

    def array(self) -> np.ndarray[Any, Any]:
        if self._array is None:
            view = from_raw(self.region.view(), self.type).view()
            view.flags.writeable = False
            self._array = view
        return self._array


class SparseContents(Contents):
    """Contents of a ``SparseTensorProto``, densified on first use. Raises ``LimitExceeded`` if that is too large."""

    __slots__ = ("_array", "_indices", "_values", "proto", "type")

    def __init__(self, proto: onnx.SparseTensorProto, files: ExternalFiles | None = None) -> None:
        self.proto = proto
        self._values, self._indices = TensorContents(proto.values, files), TensorContents(proto.indices, files)
        dims = tuple(proto.dims)
        self.type = TensorType(self._values.type.dtype, dims)
        self._array: np.ndarray[Any, Any] | None = None
        _check_dims(proto.values.name, dims)

    @property
    def nbytes(self) -> int:
        return packed_bytes(self.type)

    @property
    def is_external(self) -> bool:
        return self._values.is_external or self._indices.is_external

    def array(self) -> np.ndarray[Any, Any]:
        if self._array is None:
            name, dims = self.proto.values.name, tuple(self.proto.dims)
            limits.check_elements(dims, f'sparse tensor "{name}" {list(dims)}')
            values, indices = self._values.array(), self._indices.array()
            try:
                flat = _flat_positions(indices, dims, values)
                dense = np.full(math.prod(dims), "" if values.dtype == object else 0, values.dtype)
                dense[flat] = values
                self._array = dense.reshape(dims)
            except UNFORESEEN as error:
                raise _malformed(name, self.type, error) from error
            self._array.flags.writeable = False
        return self._array

    def inline_proto(self) -> onnx.SparseTensorProto:
        """The message with external contents inlined."""
        if not self.is_external:
            return self.proto
        proto = onnx.SparseTensorProto(dims=self.proto.dims)
        proto.values.CopyFrom(to_inline_proto(self._values, self.proto.values.name))
        proto.indices.CopyFrom(to_inline_proto(self._indices, self.proto.indices.name))
        return proto


def _flat_positions(indices: np.ndarray[Any, Any], dims: tuple[int, ...], values: np.ndarray[Any, Any]) -> Any:
    """Flat positions of a sparse tensor's values in the dense one. Raises ``ValueError`` for invalid positions."""
    if indices.dtype != np.int64 or indices.ndim not in (1, 2) or values.ndim != 1 or len(indices) != len(values):
        raise ValueError(f"there are {values.shape} values, and {indices.dtype} indices of shape {indices.shape}")
    sizes = (math.prod(dims),) if indices.ndim == 1 else dims
    if indices.ndim == 2 and indices.shape[1] != len(dims):
        raise ValueError(f"indices of {indices.shape[1]} dims in a tensor of {len(dims)}")
    if np.any(indices < 0) or np.any(indices >= np.asarray(sizes)):
        raise ValueError("there are indices outside its dims")
    return indices if indices.ndim == 1 else np.ravel_multi_index(tuple(indices.T), dims)


def _malformed(name: str, kind: TensorType, error: Exception) -> InvalidModel:
    return InvalidModel(f'tensor "{name}" does not hold the contents of {kind}', given=f"{error}"[:500])


def tensor_type(proto: TensorProto) -> TensorType:
    """The type that a tensor message declares. Raises ``InvalidModel`` for invalid dims or dtypes."""
    dims = tuple(proto.dims)
    if dims:
        _check_dims(proto.name, dims)
    return TensorType(_element_type(proto), dims)


def _element_type(proto: TensorProto) -> DType:
    try:
        dtype = DType(proto.data_type)
    except ValueError:
        dtype = DType.undefined
    if dtype is DType.undefined:
        raise InvalidModel(
            f'tensor "{proto.name}" has an unknown element type',
            given=f"code {proto.data_type}",
            available=", ".join(f"{d.value} {d}" for d in DType if d),
        )
    return dtype


def _check_dims(name: str, dims: tuple[int, ...]) -> None:
    elements = 1
    for dim in dims:
        elements *= max(dim, 1)
        if dim < 0 or elements > MAXIMUM_ELEMENTS:
            raise InvalidModel(
                f'tensor "{name}" has negative dims, or more elements than any memory holds', given=str(list(dims))
            )


def packed_bytes(kind: TensorType) -> int:
    """Size of a tensor's contents in ONNX's packed form: small elements share bytes."""
    elements = 1
    for dim in kind.shape or ():
        elements *= dim if isinstance(dim, int) else 0
    return (elements * kind.dtype.bits + 7) // 8


def static_dims(contents: Constant) -> list[int]:
    """The dims of static contents, all of which are ints."""
    return [dim for dim in contents.type.shape or () if isinstance(dim, int)]


def from_raw(raw: memoryview, kind: TensorType) -> np.ndarray[Any, Any]:
    """The array of a tensor's packed bytes; a view if elements are whole bytes."""
    dims = tuple(d for d in kind.shape or () if isinstance(d, int))
    if kind.dtype.bits < 8:
        from onnx import numpy_helper

        packed = TensorProto(dims=dims, data_type=int(kind.dtype), raw_data=bytes(raw))
        unpacked: np.ndarray[Any, Any] = numpy_helper.to_array(packed)
        return unpacked
    return np.frombuffer(raw, dtype=np.uint8).view(kind.dtype.numpy.newbyteorder("<")).reshape(dims)


def to_proto(contents: Constant, name: str) -> TensorProto:
    """Static contents as a message: the original one if it has the contents or their location."""
    if isinstance(contents, TensorContents) and contents.raw is not None:
        return to_inline_proto(contents, name)
    if isinstance(contents, TensorContents):
        if contents.proto.name == name:
            return contents.proto
        proto = TensorProto()
        proto.CopyFrom(contents.proto)
        proto.name = name
        return proto
    return array_to_proto(contents.array(), contents.type.dtype, name)


def to_inline_proto(contents: Constant, name: str) -> TensorProto:
    """Static contents as a message with inline data."""
    outside = None
    if isinstance(contents, TensorContents):
        outside = contents.raw if contents.region is None else contents.region.view()
    if not isinstance(contents, TensorContents) or outside is None:
        return to_proto(contents, name)
    inline = TensorProto(raw_data=bytes(outside))
    inline.MergeFrom(contents.proto)
    inline.name = name
    inline.ClearField("data_location")
    inline.ClearField("external_data")
    return inline


def array_to_proto(array: np.ndarray[Any, Any], dtype: DType, name: str) -> TensorProto:
    """An array as a message with raw data, or with string_data for strings."""
    if dtype is DType.string:
        proto = TensorProto(name=name, data_type=int(dtype), dims=array.shape)
        proto.string_data.extend(s if isinstance(s, bytes) else str(s).encode() for s in array.reshape(-1))
        return proto
    from onnx import numpy_helper

    proto = numpy_helper.from_array(np.ascontiguousarray(array), name)
    proto.data_type = int(dtype)
    del proto.dims[:]
    proto.dims.extend(array.shape)
    return proto
