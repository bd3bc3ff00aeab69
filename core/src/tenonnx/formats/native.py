"""The native format: a safetensors file with the graph in its metadata.

The graph is stored as an ONNX message whose initializers have only names and types; their contents are the tensors of
the file. Other fields of an initializer, such as a doc string or which field held the contents, are restored.
"""

from __future__ import annotations

import base64
import os
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tenonnx.errors import InvalidModel
from tenonnx.formats.onnx.proto import ModelProto, TensorProto
from tenonnx.formats.onnx.reader import parse_model, read_parts
from tenonnx.formats.onnx.streaming import packed_source, without_contents
from tenonnx.formats.onnx.tensors import (
    Initializers,
    MappedContents,
    TensorContents,
    from_raw,
    packed_bytes,
    tensor_type,
    to_proto,
)
from tenonnx.formats.safetensors import ELEMENT_BYTES, Entry, Tensor, read_tensors, write_tensors
from tenonnx.graph.constants import Constant
from tenonnx.graph.dtypes import DType
from tenonnx.graph.graph import Graph
from tenonnx.graph.types import TensorType

if TYPE_CHECKING:
    from tenonnx.formats.external import Region
    from tenonnx.registry.registry import Registry

#: Element types that safetensors supports. Others are stored as bytes, with the type in the graph's message.
_NAMES = {
    DType.bool: "BOOL",
    DType.uint8: "U8",
    DType.int8: "I8",
    DType.uint16: "U16",
    DType.int16: "I16",
    DType.uint32: "U32",
    DType.int32: "I32",
    DType.uint64: "U64",
    DType.int64: "I64",
    DType.float16: "F16",
    DType.bfloat16: "BF16",
    DType.float32: "F32",
    DType.float64: "F64",
    DType.float8e4m3fn: "F8_E4M3",
    DType.float8e5m2: "F8_E5M2",
}

_GRAPH = "tenonnx.graph"
_METADATA = {"format": "tenonnx", "tenonnx.version": "1"}

#: Fields of ``TensorProto`` that hold contents.
_FIELDS = ("raw_data", "float_data", "double_data", "int32_data", "int64_data", "uint64_data")

#: Keys in an initializer's message: the name of its tensor in the file, and the field that held the contents.
_TENSOR, _FIELD = "tensor", "field"


def is_native(path: str | os.PathLike[str]) -> bool:
    """Whether a file name is that of a native file."""
    return Path(path).suffix.lower() == ".safetensors"  # as load decides: a file ".safetensors" has no suffix


def write(
    model: ModelProto, initializers: Initializers, path: str | os.PathLike[str], *, overwrite: bool = False
) -> None:
    """Write a message and its initializers as a native file, atomically; contents are copied from their source.

    Raises ``NotRepresentable`` if the graph without initializers is too large, ``InvalidCall`` for a path that cannot
    be written.
    """
    tensors = []
    taken = {"__metadata__"}
    for name, contents in initializers:
        if contents.type.dtype is DType.string:
            model.graph.initializer.append(to_proto(contents, name))
            continue
        key = _free_name(name, taken)
        model.graph.initializer.append(_placeholder(name, key, contents))
        tensors.append(_tensor(key, contents, partial(packed_source, contents, name)))
    tensors.sort(key=lambda tensor: -ELEMENT_BYTES[tensor.dtype])
    graph_text = base64.b64encode(model.SerializeToString()).decode("ascii")
    write_tensors(path, tensors, {**_METADATA, _GRAPH: graph_text}, overwrite=overwrite)


def _free_name(name: str, taken: set[str]) -> str:
    while name in taken:
        name += "_"
    taken.add(name)
    return name


def _placeholder(name: str, key: str, contents: Constant) -> TensorProto:
    proto = without_contents(name, contents)
    if key != name:
        proto.external_data.add(key=_TENSOR, value=key)
    if isinstance(contents, TensorContents) and not _is_plain(contents):
        source = contents.proto
        fields = [field.name for field, _ in source.ListFields() if field.name in _FIELDS]
        proto.external_data.add(key=_FIELD, value="raw_data" if contents.is_raw_outside else "".join(fields[:1]))
    return proto


def _is_plain(contents: TensorContents) -> bool:
    """Whether a message has only name, type and contents, raw or external."""
    fields = {field.name for field, _ in contents.proto.ListFields()}
    known = {"name", "data_type", "dims", "raw_data", "external_data", "data_location"}
    return fields <= known and ("raw_data" in fields or contents.is_raw_outside)


def _tensor(key: str, contents: Constant, source: Any) -> Tensor:
    kind = contents.type
    size = packed_bytes(kind)
    dtype, shape = _stored_type(kind)
    return Tensor(key, dtype, shape, size, source)


def _stored_type(kind: TensorType) -> tuple[str, tuple[int, ...]]:
    name = _NAMES.get(kind.dtype)
    if name is None:
        return "U8", (packed_bytes(kind),)
    return name, tuple(d for d in kind.shape or () if isinstance(d, int))


def read(
    path: str | os.PathLike[str],
    base_dir: str | os.PathLike[str] | None = None,
    registry: Registry | None = None,
    *,
    mapped: bool = True,
) -> Graph:
    """The graph in a native file; its tensors are mapped, or else read on first use.

    ``base_dir`` is ignored, as a native file has no external data.

    Raises ``InvalidModel`` for an invalid or inconsistent file, ``InvalidCall`` if it cannot be read.
    """
    entries, metadata = read_tensors(path, mapped=mapped)
    name = f'"{os.fspath(path)}"'
    if _GRAPH not in metadata:
        raise InvalidModel(
            f"{name} has no graph in its metadata",
            given=f"{len(entries)} tensors and metadata {list(metadata)[:5]}",
            do="make the file with graph.save(path) or tenonnx convert, or give an ONNX file",
        )
    try:
        message = base64.b64decode(metadata[_GRAPH], validate=True)
    except ValueError as error:
        raise InvalidModel(f"the graph in {name} is not in base64", given=str(error)) from error
    model = parse_model(message, f"the graph in {name}")
    contents = [(proto.name, _contents(proto, entries)) for proto in model.graph.initializer]
    if entries:
        raise InvalidModel(f"{name} has tensors that are not of its graph", given=", ".join(list(entries)[:5]))
    del model.graph.initializer[:]
    return read_parts(model, contents, registry)


def _contents(proto: TensorProto, entries: dict[str, Entry]) -> Constant:
    """Contents for an initializer's message; removes its tensor from ``entries``."""
    kind = tensor_type(proto)
    if kind.dtype is DType.string:
        return TensorContents(proto)
    notes = {note.key: note.value for note in proto.external_data}
    entry = entries.pop(notes.get(_TENSOR, proto.name), None)
    if entry is None or (entry.dtype, entry.shape) != _stored_type(kind):
        given = "none" if entry is None else f"{entry.dtype}{list(entry.shape)}"
        raise InvalidModel(f'the file does not hold the contents of "{proto.name}", {kind}', given=given)
    if _FIELD not in notes:
        return MappedContents(kind, entry.region)
    whole = TensorProto()
    whole.CopyFrom(proto)
    del whole.external_data[:]
    _restore(whole, notes[_FIELD], entry.region, kind)
    return TensorContents(whole)


def _restore(proto: TensorProto, field: str, region: Region, kind: TensorType) -> None:
    """Restore contents to the field of a message that held them."""
    if field == "raw_data":
        proto.raw_data = bytes(region.view())
    elif field in _FIELDS:
        unit = {"float_data": "<f4", "double_data": "<f8"}.get(field) or _integer(kind.dtype)
        try:
            if kind.dtype.bits == 6:  # four of them share three bytes, but a field has one integer for each
                numbers = from_raw(region.view(), kind).view(np.uint8).reshape(-1)
            else:
                numbers = np.frombuffer(region.view(), unit)
        except ValueError as error:
            raise InvalidModel(f'tensor "{proto.name}" cannot lie in {field}', given=str(kind.dtype)) from error
        getattr(proto, field).extend(numbers.tolist())
    elif field or region.length:
        raise InvalidModel(f'tensor "{proto.name}" lies in an unknown field', given=field[:40])


def _integer(dtype: DType) -> str:
    """The numpy integer dtype of one element, or of one byte of packed elements, in an integer field."""
    is_signed = dtype.is_integer and dtype.is_signed and dtype.bits >= 8
    return f"<{'i' if is_signed else 'u'}{max(dtype.bits, 8) // 8}"
