"""Folders of images or ``.npy`` files with one row each, and ``.npy`` files of many rows."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa

from tenonnx_data.array_files import ARRAY, read_members
from tenonnx_data.columns import Array
from tenonnx_data.encoded import ODD_HEADERS
from tenonnx_data.readers.slices import Bad, Chunk, Slice, unreadable

#: Files in one slice.
TOGETHER = 64

#: Columns of files with one row each, named as in Spark's binaryFile data source.
PATH, CONTENT = "path", "content"

FILES = pa.schema([(PATH, pa.string()), (CONTENT, pa.binary())])


class Files:
    """Files with one row each; a slice has their names."""

    def schema(self, path: str) -> pa.Schema:
        return FILES

    def slices(self, path: str, rows: int) -> Iterator[Slice]:
        yield from together([path])

    def read(self, piece: Slice, schema: pa.Schema, rows: int) -> Iterator[Chunk]:
        for first in range(0, len(piece.names), rows):
            names, contents, bad = [], [], []
            for name in piece.names[first : first + rows]:
                try:
                    contents.append(Path(name).read_bytes())
                    names.append(name)
                except OSError as error:
                    bad.append(Bad(name, 0, f"it cannot be read: {error.strerror}"))
            columns = {PATH: pa.array(names, pa.string()), CONTENT: pa.array(contents, pa.binary())}
            batch = pa.RecordBatch.from_arrays([columns[name] for name in schema.names], schema=schema)
            yield Chunk(piece.path, np.zeros(len(names), np.int64), batch, bad, names)


def together(paths: Sequence[str]) -> Iterator[Slice]:
    """Group files with one row each into slices."""
    for first in range(0, len(paths), TOGETHER):
        names = tuple(paths[first : first + TOGETHER])
        size = sum(Path(name).stat().st_size for name in names if Path(name).exists())
        yield Slice(names[0], 0, len(names), 0, len(names), max(size, 1), names)


class Rows:
    """Memory-mapped ``.npy`` files with rows along the first axis; a slice is a range of rows."""

    def arrays(self, path: str) -> Mapping[str, Array]:
        """The arrays of a file by column."""
        return {ARRAY: mapped(path)}

    def schema(self, path: str) -> pa.Schema:
        return pa.schema([(name, _kind(array)) for name, array in self.arrays(path).items()])

    def slices(self, path: str, rows: int) -> Iterator[Slice]:
        arrays = self.arrays(path).values()
        total, size = len(next(iter(arrays))), sum(array.nbytes for array in arrays)
        for first in range(0, total, rows):
            count = min(rows, total - first)
            yield Slice(path, first, first + count, first, count, max(count * size // total, 1))

    def read(self, piece: Slice, schema: pa.Schema, rows: int) -> Iterator[Chunk]:
        arrays = self.arrays(piece.path)
        for first in range(piece.start, piece.stop, rows):
            last = min(first + rows, piece.stop)
            columns = [_column(arrays[name][first:last]) for name in schema.names]
            batch = pa.RecordBatch.from_arrays(columns, schema=schema)
            yield Chunk(piece.path, np.arange(first, last), batch)


class Archive(Rows):
    """``.npz`` files whose arrays are columns with equal numbers of rows."""

    def arrays(self, path: str) -> Mapping[str, Array]:
        state = Path(path).stat()
        return _members(path, state.st_mtime_ns, state.st_size)


@functools.lru_cache(maxsize=1)
def _members(path: str, *state: int) -> Mapping[str, Array]:
    """The arrays of an archive, cached for its slices. Raises ``InvalidFeed`` for arrays without rows."""
    found = read_members(path)
    if not isinstance(found, dict):
        raise unreadable(path, "a .npz file", ValueError("it holds a single array without a name"))
    arrays = {name: read() for name, read in found.items()}
    if problem := next((f"{n} is an array of {a.dtype}" for n, a in arrays.items() if a.dtype.kind not in "biufU"), ""):
        raise unreadable(path, "a .npz file of numbers and text", ValueError(problem))
    lengths = {name: len(array) if array.ndim else -1 for name, array in arrays.items()}
    if len(set(lengths.values())) != 1 or -1 in lengths.values():
        shapes = ", ".join(f"{name}: {list(array.shape)}" for name, array in arrays.items()) or "no arrays"
        raise unreadable(path, "arrays of as many rows", ValueError(shapes))
    return arrays


def _kind(array: Array) -> pa.DataType:
    kind = pa.string() if array.dtype.kind == "U" else pa.from_numpy_dtype(array.dtype)
    for size in reversed(array.shape[1:]):
        kind = pa.list_(kind, size)
    return kind


def _column(array: Array) -> pa.Array:
    part = np.ascontiguousarray(array, array.dtype.newbyteorder("="))
    column = pa.array(part.reshape(-1), pa.string() if part.dtype.kind == "U" else None)
    for size in reversed(part.shape[1:]):
        column = pa.FixedSizeListArray.from_arrays(column, size)
    return column


def mapped(path: str) -> Array:
    """The memory-mapped array of a file. Raises ``InvalidFeed`` if it is not numeric."""
    try:
        array: Array = np.load(path, mmap_mode="r", allow_pickle=False)
        if not isinstance(array, np.ndarray) or array.dtype.kind not in "biuf" or not array.ndim:
            raise ValueError("it holds no array of numbers with an axis")
    except (OSError, ValueError, EOFError, *ODD_HEADERS) as error:
        raise unreadable(path, "a .npy file", error) from error
    return array
