"""Folders of images and of ``.npy`` files, each a row; and ``.npy`` files that hold rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa

from tenonnx_score.columns import Array
from tenonnx_score.readers.slices import Bad, Chunk, Slice, unreadable

#: Files of one slice.
TOGETHER = 64

#: The columns of files that are a row each, which Spark's reader of binary files calls so, too.
PATH, CONTENT = "path", "content"

#: The column of ``.npy`` files that hold rows.
ARRAY = "array"

FILES = pa.schema([(PATH, pa.string()), (CONTENT, pa.binary())])


class Files:
    """Files that are a row each; a slice has their names."""

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
    """Files that are a row each, as slices."""
    for first in range(0, len(paths), TOGETHER):
        names = tuple(paths[first : first + TOGETHER])
        size = sum(Path(name).stat().st_size for name in names if Path(name).exists())
        yield Slice(names[0], 0, len(names), 0, len(names), max(size, 1), names)


class Rows:
    """``.npy`` files whose first axis is rows; a slice counts these. They are mapped."""

    def schema(self, path: str) -> pa.Schema:
        array = mapped(path)
        kind = pa.from_numpy_dtype(array.dtype)
        for size in reversed(array.shape[1:]):
            kind = pa.list_(kind, size)
        return pa.schema([(ARRAY, kind)])

    def slices(self, path: str, rows: int) -> Iterator[Slice]:
        array = mapped(path)
        for first in range(0, len(array), rows):
            count = min(rows, len(array) - first)
            yield Slice(path, first, first + count, first, count, max(count * array.nbytes // len(array), 1))

    def read(self, piece: Slice, schema: pa.Schema, rows: int) -> Iterator[Chunk]:
        array = mapped(piece.path)
        for first in range(piece.start, piece.stop, rows):
            part = np.ascontiguousarray(array[first : min(first + rows, piece.stop)], array.dtype.newbyteorder("="))
            column = pa.array(part.reshape(-1))
            for size in reversed(part.shape[1:]):
                column = pa.FixedSizeListArray.from_arrays(column, size)
            batch = pa.RecordBatch.from_arrays([column], schema=schema)
            yield Chunk(piece.path, np.arange(first, first + len(part)), batch)


def mapped(path: str) -> Array:
    """The array of a file. Raises ``InvalidFeed`` for what is none of numbers."""
    try:
        array: Array = np.load(path, mmap_mode="r", allow_pickle=False)
        if not isinstance(array, np.ndarray) or array.dtype.kind not in "biuf" or not array.ndim:
            raise ValueError("it holds no array of numbers with an axis")
    except (OSError, ValueError, EOFError) as error:
        raise unreadable(path, "a .npy file", error) from error
    return array
