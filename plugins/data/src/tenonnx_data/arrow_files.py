"""Parquet, Arrow and JSON lines, compressed text, and folders of such files, read as a whole with pyarrow."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from tenonnx.extend import DType, InvalidCall
from tenonnx_data.binding import Binding
from tenonnx_data.columns import Reasons, columns_of, elements, is_list, is_text, tensors
from tenonnx_data.datasets import class_names
from tenonnx_data.fields import field_parser
from tenonnx_data.readers import READERS, Chunk, found, read
from tenonnx_data.table import Array, Table

#: Rows to read at a time.
_ROWS = 1 << 16


class ArrowTable(Table):
    """The rows of files that pyarrow reads, in the order of file names."""

    def __init__(self, path: str) -> None:
        self.path, self._sources = path, found(path)
        self.fields = columns_of(self._sources.schema)
        self._rows: pa.Table | None = None
        self._first_rows: list[tuple[str, Array]] = []

    def select(self, binding: Binding) -> None:
        self._sources, self._rows = self._sources.checked(binding), None

    def column(self, name: str, dtype: DType) -> Array:
        reasons: Reasons = {}
        column = self._read().column(name)
        if is_list(column.type):
            array = tensors(column, dtype, reasons)
        else:
            array = elements(column, dtype, is_text(self._sources.schema.field(name)), reasons)
        if reasons:
            row = min(reasons)
            raise InvalidCall(
                f'column "{name}" is not a value of {dtype} in {self.location(row)}',
                given=reasons[row],
                do="correct the row",
            )
        if not isinstance(array, np.ndarray):
            shapes = sorted({part.shape for part in array if part is not None})
            raise InvalidCall(
                f'the rows of column "{name}" differ in length',
                given=", ".join(str(list(shape)) for shape in shapes[:3]),
                do="pad them to one length",
            )
        return array

    def is_text(self, name: str) -> bool:
        field = next(field for field in self.fields if field.name == name)
        if field.kind != "parsed":
            return field.kind == "text"
        return not any(_is_number(text) for text in self._read().column(name).to_pylist())

    def classes(self, name: str) -> list[str] | None:
        return class_names(self.path, name)

    def location(self, row: int) -> str:
        self._read()
        for file, numbers in self._first_rows:
            if row < len(numbers):
                return f"row {numbers[row]} of {file}"
            row -= len(numbers)
        return f"row {row} of {self.path}"

    def _read(self) -> pa.Table:
        """The selected columns, read once. Raises ``InvalidCall`` for an invalid row."""
        if self._rows is None:
            chunks = list(self._chunks())
            self._first_rows = [(chunk.file, chunk.rows) for chunk in chunks]
            self._rows = pa.Table.from_batches([chunk.batch for chunk in chunks], schema=self._sources.schema)
            if not self._rows.num_rows:
                raise InvalidCall(f"{self.path} has no rows")
        return self._rows

    def _chunks(self) -> Iterator[Chunk]:
        sources = self._sources
        for piece in sources.slices(_ROWS):
            for chunk in read(READERS[sources.format], piece, sources.schema, _ROWS):
                for bad in chunk.bad:
                    what = f"row {bad.row} of {bad.file} cannot be read"
                    raise InvalidCall(what, given=bad.reason, do="correct the row")
                yield chunk


def _is_number(text: Any) -> bool:
    try:
        field_parser(DType.float64)(text.strip())
    except (ValueError, OverflowError, AttributeError):
        return False
    return True
