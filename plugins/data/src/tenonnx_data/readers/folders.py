"""Partition columns in folder names, as in Hive and Spark: ``year=2024/country=de/rows.parquet``."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from urllib.parse import unquote

import pyarrow as pa

from tenonnx_data.columns import FOLDER, is_folder
from tenonnx_data.readers.slices import Chunk, Reader, Slice

#: Folder name for a missing value.
_NONE = "__HIVE_DEFAULT_PARTITION__"

_WHOLE = re.compile("-?(0|[1-9][0-9]{0,17})")


def columns_of_folders(paths: Sequence[str], taken: Collection[str]) -> list[pa.Field]:
    """The partition columns common to all files, except those in ``taken``: integers, or text."""
    partitions = [_partition_values(path) for path in paths]
    fields = []
    for name in partitions[0]:
        if name not in taken and all(name in each for each in partitions):
            values = {each[name] for each in partitions} - {None}
            whole = values and all(_WHOLE.fullmatch(value) for value in values if value is not None)
            fields.append(pa.field(name, pa.int64() if whole else pa.string(), metadata={FOLDER: b"1"}))
    return fields


def _partition_values(path: str) -> dict[str, str | None]:
    parts = (part.partition("=") for part in Path(path).parent.parts)
    return {name: None if value == _NONE else unquote(value) for name, equals, value in parts if name and equals}


def read(reader: Reader, piece: Slice, schema: pa.Schema, rows: int) -> Iterator[Chunk]:
    """Batches of a reader, with partition columns added."""
    own = pa.schema([field for field in schema if not is_folder(field)])
    if len(own) == len(schema):
        yield from reader.read(piece, schema, rows)
        return
    own = own if len(own) else pa.schema([reader.schema(piece.path).field(0)])  # any column, for the number of rows
    for chunk in reader.read(piece, own, rows):
        partitions = [_partition_values(path) for path in chunk.files or [chunk.file]]
        columns = [
            _column(field, [each[field.name] for each in partitions], chunk.batch.num_rows)
            if is_folder(field)
            else chunk.batch.column(own.get_field_index(field.name))
            for field in schema
        ]
        yield chunk._replace(batch=pa.RecordBatch.from_arrays(columns, schema=schema))


def _column(field: pa.Field, values: Sequence[str | None], rows: int) -> pa.Array:
    number = pa.types.is_integer(field.type) or pa.types.is_floating(field.type)
    typed = [int(value) if number and value is not None else value for value in values]
    return pa.array(typed, field.type) if len(typed) == rows else pa.repeat(pa.scalar(typed[0], field.type), rows)
