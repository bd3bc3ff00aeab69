"""Input files matched by patterns, all of one format, and their columns."""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa

from tenonnx import Graph, InvalidCall, InvalidFeed, TensorType
from tenonnx.extend import did_you_mean_file
from tenonnx_data.binding import Binding
from tenonnx_data.columns import is_folder
from tenonnx_data.datasets import files_of, is_dataset
from tenonnx_data.readers.compressed import is_compressed, is_empty, suffix_of
from tenonnx_data.readers.files import Archive, Files, Rows, mapped, together
from tenonnx_data.readers.folders import columns_of_folders
from tenonnx_data.readers.slices import Reader, Slice
from tenonnx_data.readers.tables import Ipc, Parquet
from tenonnx_data.readers.text import Csv, JsonLines

#: Readers by file format.
READERS: Mapping[str, Reader] = {
    "parquet": Parquet(),
    "csv": Csv(),
    "jsonl": JsonLines(),
    "arrow": Ipc(),
    "files": Files(),
    "rows": Rows(),
    "npz": Archive(),
}

_IMAGES = (".jpg", ".jpeg", ".png", ".bmp", ".gif", ".webp", ".tif", ".tiff", ".ppm", ".pgm")

#: File formats by suffix.
SUFFIXES: Mapping[str, str] = {
    ".parquet": "parquet",
    ".pq": "parquet",
    ".csv": "csv",
    ".tsv": "csv",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "jsonl",
    ".arrow": "arrow",
    ".arrows": "arrow",
    ".feather": "arrow",
    ".ipc": "arrow",
    ".npy": "npy",
    ".npz": "npz",
    **dict.fromkeys(_IMAGES, "files"),
}

#: Formats that may be compressed.
_TEXT = ("csv", "jsonl")


class Sources(NamedTuple):
    """Files of one format, in order, and their common columns."""

    format: str
    paths: tuple[str, ...]
    schema: pa.Schema

    def slices(self, rows: int) -> Iterator[Slice]:
        """The slices of all files, in order."""
        if self.format == "files":
            yield from together(self.paths)
            return
        for path in self.paths:
            yield from READERS[self.format].slices(path, rows)

    def checked(self, binding: Binding) -> Sources:
        """The columns to read. Raises ``InvalidFeed`` for a file in which one is missing or has another type."""
        schema = pa.schema([self.schema.field(name) for name in binding.columns_to_read])
        if self.format == "files":
            return self._replace(schema=schema)
        for path in self.paths[1:]:
            other = READERS[self.format].schema(path)
            for field in (each for each in schema if not is_folder(each)):
                if other.names.count(field.name) != 1:
                    raise InvalidFeed(
                        f'"{path}" lacks the column "{field.name}" of "{self.paths[0]}"',
                        given=", ".join(other.names) or "no columns",
                        do="add the column, or leave the file out",
                    )
                found = other.field(field.name).type
                if found != field.type and self.format != "jsonl":
                    raise InvalidFeed(
                        f'column "{field.name}" has several types in the files',
                        given=f"{field.type} in {self.paths[0]}, {found} in {path}",
                        do="cast it, or score the files apart",
                    )
        return self._replace(schema=_widened(schema, binding) if self.format == "jsonl" else schema)


def _widened(schema: pa.Schema, binding: Binding) -> pa.Schema:
    """The columns of JSON, as floats where the model takes floats, since a file may contain only integers."""
    floats = {name for bound in binding.inputs if bound.dtype.is_float for name in bound.columns}
    texts = {name for bound in binding.inputs for name in bound.columns} - floats
    fields = []
    for field in schema:
        kind = _with_floats(field.type) if field.name in floats else field.type
        if pa.types.is_null(kind):
            kind = pa.string() if field.name in texts or field.name not in floats else pa.float64()
        fields.append(field.with_type(kind))
    return pa.schema(fields)


def _with_floats(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_list(kind):
        return pa.list_(_with_floats(kind.value_type))
    return pa.float64() if pa.types.is_integer(kind) or pa.types.is_null(kind) else kind


def found(patterns: str | Sequence[str], graph: Graph | None = None) -> Sources:
    """Find the files for paths, folders and patterns such as ``data/*.parquet``.

    Image and array files are rows of the inputs of ``graph``.

    Raises ``InvalidCall`` if there is none, or if they are of several formats, and ``InvalidFeed`` for one that cannot
    be read.
    """
    paths: dict[str, None] = {}
    for pattern in [patterns] if isinstance(patterns, str | os.PathLike) else patterns:
        paths |= dict.fromkeys(_named(os.fspath(pattern)))
    kinds = {path: SUFFIXES[suffix_of(path)] for path in paths}
    first = next(iter(paths))
    others = [path for path, kind in kinds.items() if kind != kinds[first]]
    if others:
        raise InvalidCall(
            "the input files are of several kinds",
            given=f"{first} and {others[0]}",
            do="name those that are meant, such as --input 'data/*.parquet'",
        )
    kind = _npy_kind(first, graph) if kinds[first] == "npy" and graph is not None else kinds[first]
    full = [path for path in paths if kind not in _TEXT or not is_empty(path)] or [first]
    schema = READERS[kind].schema(full[0])
    return Sources(kind, tuple(full), pa.schema([*schema, *columns_of_folders(full, schema.names)]))


def _npy_kind(path: str, graph: Graph) -> str:
    """Whether ``.npy`` files have one row or many: by the rank of the only input."""
    ranks = {value.type.rank for value in graph.inputs if isinstance(value.type, TensorType)}
    rank = ranks.pop() if len(ranks) == 1 else None
    if rank is None:
        return "rows"
    array = mapped(path)
    if array.ndim not in (rank, rank - 1):
        raise InvalidFeed(
            f'"{path}" does not hold rows of the input',
            given=f"an array of shape {list(array.shape)}",
            available=", ".join(f"{value.name}: {value.type}" for value in graph.inputs),
        )
    return "rows" if array.ndim == rank else "files"


def _named(pattern: str) -> list[str]:
    """The files of a pattern, in natural sort order."""
    path = Path(pattern)
    if path.is_file():
        files = [path]
        if not _known(path):
            raise InvalidCall(
                "unknown kind of file", given=pattern, available=", ".join(SUFFIXES), do="rename the file"
            )
    elif path.is_dir() and is_dataset(path):
        return [str(each.absolute()) for each in files_of(path)]
    elif path.is_dir():
        files = [each for each in path.rglob("*") if _known(each) and not _hidden(each, path)]
    else:
        named = [Path(each) for each in glob.glob(pattern, recursive=True)]  # noqa: PTH207  of absolute patterns, too
        files = [each for each in named if _known(each) and each.is_file()]
    if not files:
        raise InvalidCall(
            "no files to score",
            given=pattern,
            available=f"files of {', '.join(SUFFIXES)}",
            do=did_you_mean_file(pattern) or "name a file, a folder, or a pattern such as 'data/*.parquet'",
        )
    return sorted((str(each.absolute()) for each in files), key=_natural)


def _known(path: Path) -> bool:
    """Whether a file has a supported format; only text may be compressed."""
    kind = SUFFIXES.get(suffix_of(path))
    return kind is not None and (kind in _TEXT or not is_compressed(path.name))


def _hidden(path: Path, folder: Path) -> bool:
    return any(part.startswith((".", "_")) for part in path.relative_to(folder).parts)


def _natural(name: str) -> list[tuple[bool, int, str]]:
    return [(part.isdigit(), int(part) if part.isdigit() else 0, part) for part in re.split(r"([0-9]+)", name)]
