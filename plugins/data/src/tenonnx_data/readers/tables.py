"""Parquet and Arrow files: rows with typed columns."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import parquet

from tenonnx_data.readers.slices import Chunk, Slice, unreadable

#: Bytes of a column to read at a time.
_BUFFER = 1 << 20


class Parquet:
    """Parquet files; a slice counts rows."""

    def schema(self, path: str) -> pa.Schema:
        with _opened(path) as file:
            return file.schema_arrow.remove_metadata()

    def slices(self, path: str, rows: int) -> Iterator[Slice]:
        with _opened(path) as file:
            groups = [file.metadata.row_group(k) for k in range(file.metadata.num_row_groups)]
        start = 0
        for group in groups:
            weight = group.total_byte_size
            for first in range(0, group.num_rows, rows):
                count = min(rows, group.num_rows - first)
                at = start + first
                yield Slice(path, at, at + count, at, count, max(weight * count // group.num_rows, 1))
            start += group.num_rows

    def read(self, piece: Slice, schema: pa.Schema, rows: int) -> Iterator[Chunk]:
        with _opened(piece.path) as file:
            counts = [file.metadata.row_group(k).num_rows for k in range(file.metadata.num_row_groups)]
            ends = np.cumsum(counts)
            first = int(np.searchsorted(ends, piece.start, side="right"))
            last = int(np.searchsorted(ends, piece.stop, side="left"))
            at = int(ends[first]) - counts[first]
            batches = file.iter_batches(
                batch_size=rows, row_groups=list(range(first, last + 1)), columns=schema.names, use_threads=False
            )
            for batch in batches:
                start, stop = max(piece.start - at, 0), min(piece.stop - at, batch.num_rows)
                if start < stop:
                    yield _chunk(piece.path, at + start, batch.slice(start, stop - start), schema)
                at += batch.num_rows
                if at >= piece.stop:
                    return


def _chunk(path: str, first: int, batch: pa.RecordBatch, schema: pa.Schema) -> Chunk:
    columns = [batch.column(batch.schema.get_field_index(name)) for name in schema.names]
    return Chunk(path, np.arange(first, first + batch.num_rows), pa.RecordBatch.from_arrays(columns, schema=schema))


@contextmanager
def _opened(path: str) -> Iterator[Any]:
    try:
        with parquet.ParquetFile(path, buffer_size=_BUFFER, pre_buffer=False, page_checksum_verification=True) as file:
            yield file
    except (OSError, pa.ArrowException) as error:
        raise unreadable(path, "a Parquet file", error) from error


class Ipc:
    """Arrow files and streams; a slice counts rows. A stream is read from its start."""

    def schema(self, path: str) -> pa.Schema:
        with _mapped(path) as (schema, _):
            return schema.remove_metadata()

    def slices(self, path: str, rows: int) -> Iterator[Slice]:
        with _mapped(path) as (_, batches):
            counts = [batch.num_rows for batch in batches]
        total = sum(counts)
        size = Path(path).stat().st_size
        for first in range(0, total, rows):
            count = min(rows, total - first)
            yield Slice(path, first, first + count, first, count, max(size * count // total, 1))

    def read(self, piece: Slice, schema: pa.Schema, rows: int) -> Iterator[Chunk]:
        at = 0
        with _mapped(piece.path) as (_, batches):
            for batch in batches:
                start, stop = max(piece.start - at, 0), min(piece.stop - at, batch.num_rows)
                for first in range(start, stop, rows):
                    part = batch.slice(first, min(rows, stop - first))
                    yield _chunk(piece.path, at + first, part, schema)
                at += batch.num_rows
                if at >= piece.stop:
                    return


@contextmanager
def _mapped(path: str) -> Iterator[tuple[pa.Schema, Iterator[pa.RecordBatch]]]:
    try:
        with pa.memory_map(path) as source:
            try:
                file = pa.ipc.open_file(source)
            except pa.ArrowInvalid:
                source.seek(0)
                stream = pa.ipc.open_stream(source)
                yield stream.schema, iter(stream)
            else:
                yield file.schema, (file.get_batch(k) for k in range(file.num_record_batches))
    except (OSError, pa.ArrowException) as error:
        raise unreadable(path, "an Arrow file", error) from error
