"""Streaming a model to a file tensor by tensor, without copies in memory."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, BinaryIO

from tenonnx.errors import InvalidCall
from tenonnx.formats.external import ExternalDataWriter, Pieces, Region
from tenonnx.formats.files import AtomicWriter, available_name
from tenonnx.formats.onnx import proto as onnx
from tenonnx.formats.onnx.proto import TensorProto
from tenonnx.formats.onnx.tensors import (
    Initializers,
    MappedContents,
    TensorContents,
    array_to_proto,
    packed_bytes,
    static_dims,
    to_proto,
)
from tenonnx.formats.onnx.wire import GRAPH, INITIALIZER, RAW_DATA, header
from tenonnx.formats.onnx.writer import copy_fields
from tenonnx.graph.constants import Constant, RowConstant
from tenonnx.graph.dtypes import DType

if TYPE_CHECKING:
    import numpy as np

#: Maximum size of a message that parsers accept, in bytes; beyond it the largest tensors go to a data file.
LARGEST_MESSAGE = (1 << 31) - (1 << 24)

#: Size of the pieces, in bytes, in which a row-wise constant is produced.
_PIECE = 4 << 20

#: Tensors of at least this many bytes may become external if the message would be too large.
_SPILLED = 1024


def write_file(
    path: str | os.PathLike[str],
    model: onnx.ModelProto,
    initializers: Initializers,
    threshold: int | None,
    *,
    overwrite: bool = False,
) -> None:
    """Write a model and, if needed, one data file; both appear or nothing changes.

    Tensors of at least ``threshold`` bytes become external; with None, those that were external. The replaced model's
    own data file is removed.
    """
    with AtomicWriter(path, overwrite=overwrite) as writer:
        write_files(writer, model, initializers, threshold)


def write_files(
    writer: AtomicWriter, model: onnx.ModelProto, initializers: Initializers, threshold: int | None
) -> None:
    """Write a model and its data file with a writer that renames them later."""
    inline, external = _divide(model, initializers, threshold)
    entries: dict[str, TensorProto] = {}
    if external:
        name = available_name(writer.folder, f"{writer.name}.data")
        if name != name.encode("utf-8", "replace").decode():
            what = "the name of a model, by which it finds its external data, is not in UTF-8"
            raise InvalidCall(what, given=ascii(name), do="choose another name, or keep the data inside")
        entries = _write_external(writer.open(name), name, external)
    _write_message(writer.open(), model, entries, inline, initializers)
    writer.discard_superseded()


def write_stream(stream: BinaryIO, model: onnx.ModelProto, initializers: Initializers) -> None:
    """Write a model to a binary stream, with all tensors inline. Raises ``InvalidCall`` if writing fails."""
    inline = {name for name, _ in initializers}
    try:
        _write_message(stream, model, {}, inline, initializers)
    except (OSError, ValueError, TypeError) as error:  # disk full, closed, or a text stream
        raise InvalidCall(
            "cannot write binary data to the stream",
            given=f"{type(stream).__name__}: {error}",
            do="open a file in binary mode, or give export its path",
        ) from error


def _divide(model: onnx.ModelProto, initializers: Initializers, threshold: int | None) -> tuple[set[str], Initializers]:
    """The names of inline tensors, and the external tensors in the order of their former places."""
    external = []
    total = model.ByteSize()
    for name, contents in initializers:
        outside = isinstance(contents, TensorContents) and contents.region is not None
        if contents.type.dtype is not DType.string and (outside if threshold is None else contents.nbytes >= threshold):
            external.append((name, contents))
        else:
            total += contents.nbytes
    if total > LARGEST_MESSAGE:
        chosen = {name for name, _ in external}
        spilled = [(n, c) for n, c in initializers if c.nbytes >= _SPILLED and c.type.dtype is not DType.string]
        external += [(name, contents) for name, contents in spilled if name not in chosen]
    external.sort(key=lambda entry: _old_place(entry[1]))
    outside_names = {name for name, _ in external}
    return {name for name, _ in initializers if name not in outside_names}, external


def _old_place(contents: Constant) -> tuple[str, int]:
    region = contents.region if isinstance(contents, TensorContents) else None
    return ("", 0) if region is None else (region.path, region.offset)


def _write_external(file: BinaryIO, location: str, tensors: Initializers) -> dict[str, TensorProto]:
    entries: dict[str, TensorProto] = {}
    with ExternalDataWriter(file) as writer:
        for name, contents in tensors:
            offset, length = writer.append(packed_source(contents, name))
            entry = without_contents(name, contents)
            entry.data_location = TensorProto.EXTERNAL
            for key, value in (("location", location), ("offset", offset), ("length", length)):
                entry.external_data.add(key=key, value=str(value))
            entries[name] = entry
    return entries


def packed_source(contents: Constant, name: str) -> Region | Pieces | Any:
    """The packed bytes of a tensor as a source for the writer: a region of a file, memory, or pieces."""
    region = contents.region if isinstance(contents, TensorContents | MappedContents) else None
    if region is not None:
        return region
    if isinstance(contents, TensorContents) and contents.raw is not None:
        return contents.raw
    size, dims = packed_bytes(contents.type), static_dims(contents)
    if dims and size > _PIECE and isinstance(contents, RowConstant) and not isinstance(contents, TensorContents):
        return Pieces(size, partial(_pieces, contents, dims[0], name))
    return _raw(contents.array(), contents.type.dtype, name)


def _pieces(contents: RowConstant, length: int, name: str) -> Iterator[Any]:
    """A tensor in runs of rows, each a multiple of whole bytes."""
    count = max(1, _PIECE * length // packed_bytes(contents.type)) + 7 & ~7
    for start in range(0, length, count):
        yield _raw(contents.rows(start, min(start + count, length)), contents.type.dtype, name)


def _raw(array: np.ndarray[Any, Any], dtype: DType, name: str) -> Any:
    """The packed bytes of an array, without a copy if its memory has the format of files."""
    if dtype.bits >= 8 and sys.byteorder == "little" and array.flags.c_contiguous:
        return array.reshape(-1).view("uint8")
    return array_to_proto(array, dtype, name).raw_data


def _write_message(
    file: BinaryIO,
    model: onnx.ModelProto,
    entries: Mapping[str, TensorProto],
    inline: set[str],
    initializers: Initializers,
) -> None:
    """Serialize piecewise: the concatenation of serialized fields is the serialized message."""
    head, graph = onnx.ModelProto(), model.graph
    copy_fields(model, head, without=("graph",))
    body = graph.SerializeToString()
    sizes = [_size(name, contents, entries, inline) for name, contents in initializers]
    length = len(body) + sum(len(header(INITIALIZER, size)) + size for size in sizes)
    file.write(head.SerializeToString())
    file.write(header(GRAPH, length))
    file.write(body)
    for (name, contents), size in zip(initializers, sizes, strict=True):
        file.write(header(INITIALIZER, size))
        for chunk in _chunks(name, contents, entries, inline):
            file.write(chunk)


def _size(name: str, contents: Constant, entries: Mapping[str, TensorProto], inline: set[str]) -> int:
    size = _message_of(name, contents, entries, inline).ByteSize()
    if _is_streamed(name, contents, inline):
        packed = packed_bytes(contents.type)
        size += len(header(RAW_DATA, packed)) + packed
    return int(size)


def _is_streamed(name: str, contents: Constant, inline: set[str]) -> bool:
    """Whether the raw contents are written after the tensor's message, directly from their source."""
    read_inline = isinstance(contents, TensorContents) and contents.region is None and contents.raw is None
    return name in inline and not read_inline and contents.type.dtype is not DType.string


def _message_of(name: str, contents: Constant, entries: Mapping[str, TensorProto], inline: set[str]) -> TensorProto:
    """The tensor's message, without contents if these are streamed."""
    if name not in inline:
        return entries[name]
    if _is_streamed(name, contents, inline):
        return without_contents(name, contents)
    return to_proto(contents, name)


def without_contents(name: str, contents: Constant) -> TensorProto:
    """A tensor's message without contents and their location."""
    message = TensorProto(name=name, data_type=int(contents.type.dtype), dims=static_dims(contents))
    if isinstance(contents, TensorContents):
        if contents.proto.HasField("doc_string"):
            message.doc_string = contents.proto.doc_string
        message.metadata_props.extend(contents.proto.metadata_props)
    return message


def _chunks(
    name: str, contents: Constant, entries: Mapping[str, TensorProto], inline: set[str]
) -> Iterator[bytes | memoryview]:
    yield _message_of(name, contents, entries, inline).SerializeToString()
    if _is_streamed(name, contents, inline):
        yield header(RAW_DATA, packed_bytes(contents.type))
        source = packed_source(contents, name)
        if isinstance(source, Pieces):
            yield from source
        else:
            yield source.view() if isinstance(source, Region) else memoryview(source)
