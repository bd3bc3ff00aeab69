"""The safetensors container: named tensors in one file with a JSON header.

A file is the length of the header in eight bytes, the header, and the contents of all tensors without gaps. Files are
written in pieces and mapped on reading, which the safetensors package does not offer for tensors in other files. The
header of an untrusted file is validated before it is used.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tenonnx.errors import InvalidCall, InvalidModel, NotRepresentable, did_you_mean_file
from tenonnx.formats.external import DataFile, ExternalDataWriter, Region
from tenonnx.formats.files import AtomicWriter

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

#: Bytes of one element for each element type of the format.
ELEMENT_BYTES = {
    "BOOL": 1,
    "U8": 1,
    "I8": 1,
    "F8_E4M3": 1,
    "F8_E5M2": 1,
    "U16": 2,
    "I16": 2,
    "F16": 2,
    "BF16": 2,
    "U32": 4,
    "I32": 4,
    "F32": 4,
    "U64": 8,
    "I64": 8,
    "F64": 8,
}

#: The format limits headers to this many bytes.
LARGEST_HEADER = 100_000_000

_METADATA = "__metadata__"


@dataclass(frozen=True, slots=True)
class Entry:
    """One tensor of a file: its declared type, and the location of its bytes."""

    dtype: str
    shape: tuple[int, ...]
    region: Region


@dataclass(frozen=True, slots=True)
class Tensor:
    """One tensor to write; ``length`` is the number of bytes that ``source`` produces."""

    name: str
    dtype: str
    shape: Sequence[int]
    length: int
    source: Any


def write_tensors(
    path: str | os.PathLike[str], tensors: Iterable[Tensor], metadata: Mapping[str, str], *, overwrite: bool = False
) -> None:
    """Write a file atomically; the sources are called one after the other.

    Raises ``NotRepresentable`` if the header exceeds the limit of the format, else as ``AtomicWriter``.
    """
    header: dict[str, Any] = {_METADATA: dict(metadata)}
    ordered = list(tensors)
    end = 0
    for tensor in ordered:
        place = [end, end + tensor.length]
        header[tensor.name] = {"dtype": tensor.dtype, "shape": list(tensor.shape), "data_offsets": place}
        end = place[1]
    encoded = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    encoded += b" " * (-len(encoded) % 8)  # so that alignment within the contents is alignment in the file
    if len(encoded) > LARGEST_HEADER:
        raise NotRepresentable(
            f"the header of the safetensors file has more than {LARGEST_HEADER:,} bytes",
            given=f"{len(encoded):,} bytes: the graph without its initializers is too large",
            do="export it as ONNX",
        )
    with AtomicWriter(path, overwrite=overwrite) as files, ExternalDataWriter(files.open(), alignment=1) as writer:
        writer.append(len(encoded).to_bytes(8, "little") + encoded)
        for tensor in ordered:
            writer.append(tensor.source())


def read_tensors(path: str | os.PathLike[str], *, mapped: bool = True) -> tuple[dict[str, Entry], dict[str, str]]:
    """The tensors of a file, mapped (or else read) on first use, and its metadata.

    Raises ``InvalidCall`` if the file does not exist, ``InvalidModel`` if it breaks a rule of the format.
    """
    name = os.fspath(path)
    if not Path(path).is_file():
        raise InvalidCall(f'cannot read "{name}": No such file', do=did_you_mean_file(name))
    try:
        file = DataFile(name, os.open(path, os.O_RDONLY | getattr(os, "O_BINARY", 0)), mapped=mapped)
    except OSError as error:
        raise InvalidCall(f'cannot read "{name}": {error.strerror or error}') from error
    try:
        return _read(file)
    except (ValueError, RecursionError) as error:
        raise InvalidModel(f'"{name}" is not a safetensors file', given=str(error)) from error


def _read(file: DataFile) -> tuple[dict[str, Entry], dict[str, str]]:
    """Parse the header. Raises ``ValueError`` for every error in it."""
    if file.size < 8:
        raise ValueError(f"it has {file.size} bytes")
    length = int.from_bytes(file.view(0, 8), "little")
    start = 8 + length
    if length > LARGEST_HEADER or start > file.size:
        raise ValueError(f"a header of {length} bytes in a file of {file.size}")
    header = json.loads(bytes(file.view(8, length)).decode(), object_pairs_hook=_unique)
    if not isinstance(header, dict):
        raise ValueError("the header is not a JSON object")
    metadata = header.pop(_METADATA, {})
    if not isinstance(metadata, dict) or not all(isinstance(text, str) for text in metadata.values()):
        raise ValueError("the metadata does not map strings to strings")
    entries = {name: _entry(name, fields, file, start) for name, fields in header.items()}
    end = start
    for name, entry in sorted(entries.items(), key=lambda item: (item[1].region.offset, item[1].region.end)):
        if entry.region.offset != end:
            raise ValueError(f'tensor "{name}" overlaps another one, or leaves a gap before it')
        end = entry.region.end
    if end != file.size:
        raise ValueError(f"{file.size - end} bytes at the end belong to no tensor")
    return entries, metadata


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) < len(pairs):
        raise ValueError("a name is used twice in the header")
    return result


def _entry(name: str, fields: Any, file: DataFile, start: int) -> Entry:
    if not isinstance(fields, dict) or fields.keys() != {"dtype", "shape", "data_offsets"}:
        raise ValueError(f'tensor "{name}" does not have the fields dtype, shape and data_offsets')
    dtype, shape, offsets = fields["dtype"], fields["shape"], fields["data_offsets"]
    if not isinstance(dtype, str) or dtype not in ELEMENT_BYTES:
        raise ValueError(f'tensor "{name}" has the dtype {dtype!r:.40}; there are {", ".join(ELEMENT_BYTES)}')
    if not _are_sizes(shape) or not _are_sizes(offsets) or len(offsets) != 2:
        raise ValueError(f'tensor "{name}" has invalid sizes or offsets')
    size = ELEMENT_BYTES[dtype]
    for dim in shape:
        size *= dim
    begin, end = offsets
    if end - begin != size or start + end > file.size:
        raise ValueError(f'tensor "{name}" of {dtype}{shape!r:.80} cannot lie at {begin} to {end}')
    return Entry(dtype, tuple(shape), Region(file, start + begin, size))


def _are_sizes(numbers: Any) -> bool:
    return isinstance(numbers, list) and all(type(n) is int and 0 <= n < 1 << 63 for n in numbers)
