"""Writing parts atomically."""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyarrow import parquet

from tenonnx import TenonnxError
from tenonnx_data.readers import Bad

#: Rows and bytes to write at a time.
GROUP_ROWS, GROUP_BYTES = 1 << 16, 32 << 20


class OutputFailed(TenonnxError):
    """A file of the output could not be written."""


@contextmanager
def writing_to(folder: Path) -> Iterator[None]:
    """Convert errors of the operating system to ``OutputFailed`` for this folder."""
    try:
        yield
    except OSError as error:
        raise OutputFailed(
            f'cannot write the output to "{folder}"',
            given=error.strerror or " ".join(str(error).split()),
            do="make room on the disk, or correct the permissions, and run the command again: what was written stays, "
            "and it goes on from there",
        ) from error


class Writer:
    """An output file and that of its bad rows, which are renamed once they are complete and on disk."""

    def __init__(self, folder: Path, number: int, format: str, schema: pa.Schema) -> None:
        self._folder, self._schema, self.bad = folder, schema, 0
        self._path, self._errors = folder / part_name(number, format), folder / errors_name(number)
        unique = uuid.uuid4().hex
        self._batches: list[pa.RecordBatch] = []
        self._rows = self._bytes = 0
        self._temporary = folder / f".{self._path.name}.{unique}.tmp"
        self._bad_part = self._errors.parent / f".{self._errors.name}.{unique}.tmp"
        self._file: Any = None
        self._bad_file: Any = None
        with writing_to(self._folder):
            self._file = (
                parquet.ParquetWriter(str(self._temporary), schema, use_dictionary=_repeating(schema))
                if format == "parquet"
                else pa.ipc.new_file(str(self._temporary), schema)
            )

    def write(self, batch: pa.RecordBatch) -> None:
        self._batches.append(batch)
        self._rows, self._bytes = self._rows + batch.num_rows, self._bytes + batch.nbytes
        if self._rows >= GROUP_ROWS or self._bytes >= GROUP_BYTES:
            self._flush()

    def _flush(self) -> None:
        if self._batches:
            table = pa.Table.from_batches(self._batches, self._schema)
            self._batches, self._rows, self._bytes = [], 0, 0
            with writing_to(self._folder):
                self._file.write_table(table)

    def write_bad(self, rows: Sequence[Bad]) -> None:
        with writing_to(self._folder):
            if self._bad_file is None:
                self._bad_part.parent.mkdir(exist_ok=True)
                self._bad_file = self._bad_part.open("w", encoding="utf-8")
            for row in rows:
                entry = {"file": row.file, "row": row.row, "reason": row.reason}
                self._bad_file.write(json.dumps(entry | ({} if row.text is None else {"text": row.text})) + "\n")
        self.bad += len(rows)

    def close(self) -> int:
        """Sync the files to disk and rename them; returns the size of the part."""
        self._flush()
        with writing_to(self._folder):
            self._file.close()
            synced(self._temporary)
            if self._bad_file is not None:
                self._bad_file.close()
                synced(self._bad_part)
                self._bad_part.replace(self._errors)
                synced(self._errors.parent)
            size = self._temporary.stat().st_size
            self._temporary.replace(self._path)
            synced(self._folder)
        return size

    def drop(self) -> None:
        """Remove unfinished files."""
        for file in (self._file, self._bad_file):
            with suppress(OSError, pa.ArrowException, ValueError):
                if file is not None:
                    file.close()
        for path in (self._temporary, self._bad_part):
            with suppress(OSError):
                path.unlink()


def _repeating(schema: pa.Schema) -> list[str]:
    """Columns to encode with a dictionary: float values seldom repeat."""
    return [
        field.name for field in schema if not pa.types.is_nested(field.type) and not pa.types.is_floating(field.type)
    ]


def synced(path: Path) -> None:
    """Sync a file or folder to disk, if the system supports it."""
    if path.is_dir() and os.name == "nt":
        return
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def part_name(number: int, format: str) -> str:
    return f"part-{number:06}.{format}"


def errors_name(number: int) -> str:
    """Name of the file for a part's bad rows: readers of table folders ignore names with this prefix."""
    return f"errors/_part-{number:06}.jsonl"
