"""CSV files and JSON lines: text is split at rows, and invalid lines are reported."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.json

from tenonnx_data.columns import TEXT, loses
from tenonnx_data.fields import delimiter_of
from tenonnx_data.readers.compressed import COMPRESSED_PIECES, is_compressed, opened_text
from tenonnx_data.readers.slices import Bad, Chunk, Slice, unreadable

#: Size of a block of text, and maximum size of a row, in bytes.
BLOCK, LARGEST_ROW = 4 << 20, 64 << 20

#: Bytes from the start of a file for inference of its columns.
HEAD = 1 << 20

_QUOTE, _NEWLINE = ord('"'), ord("\n")


def _blocks(path: str, start: int, quoted: bool, stop: int | None = None) -> Iterator[tuple[int, int, bytes]]:
    """Blocks of whole rows of a text: the offset of each, its number of row ends, and its bytes.

    Raises the errors of reading, and ``ValueError`` for a row without an end.
    """
    with opened_text(path, start) as file:
        rest = b""
        while True:
            size = BLOCK if stop is None else min(2 * BLOCK, stop - start - len(rest))
            read = file.read(size) if size else b""
            rest += read
            cut, count = _whole_rows(rest, quoted) if read else (len(rest), _whole_rows(rest, quoted)[1] + 1)
            if cut:
                yield start, count, rest[:cut]
                start, rest = start + cut, rest[cut:]
            if not read:
                return
            if len(rest) > LARGEST_ROW:
                raise ValueError(f"a row at byte {start} has more than {LARGEST_ROW >> 20} MB; is a quote not closed?")


def _whole_rows(text: bytes, quoted: bool) -> tuple[int, int]:
    """The end of the last complete row of a text, and the number of complete rows."""
    if not quoted or b'"' not in text:
        return text.rfind(b"\n") + 1, text.count(b"\n")
    ends = _row_ends(text, quoted)
    return (int(ends[-1]) + 1 if len(ends) else 0), len(ends)


def _row_ends(text: bytes, quoted: bool) -> np.ndarray[Any, Any]:
    """Positions of the line breaks that end rows."""
    array = np.frombuffer(text, np.uint8)
    breaks = array == _NEWLINE
    return np.flatnonzero(breaks & ((np.cumsum(array == _QUOTE) & 1) == 0) if quoted else breaks)


def _pieces(path: str, start: int, quoted: bool, kind: str, rows: int) -> Iterator[Slice]:
    """Slices of a text; a few large ones for a compressed file, as each is decompressed from the start."""
    try:
        blocks = _blocks(path, start, quoted)
        if is_compressed(path):
            yield from _joined(path, [(at, count, len(text)) for at, count, text in blocks], rows)
        else:
            yield from _each(path, _cut(blocks, quoted, rows))
    except (OSError, ValueError, pa.ArrowException) as error:
        raise unreadable(path, kind, error) from error


def _cut(blocks: Iterable[tuple[int, int, bytes]], quoted: bool, rows: int) -> Iterator[tuple[int, int, int]]:
    """Blocks split after every ``rows`` rows: offset, rows and bytes of each piece."""
    left = rows
    for start, count, text in blocks:
        ends = _row_ends(text, quoted) if count > left else np.empty(0, np.int64)
        done = at = 0
        while count - done > left:
            end = int(ends[done + left - 1]) + 1
            yield start + at, left, end - at
            done, at, left = done + left, end, rows
        yield start + at, count - done, len(text) - at
        left = left - (count - done) or rows


def _each(path: str, blocks: Iterable[tuple[int, int, int]]) -> Iterator[Slice]:
    row = 0
    for start, count, size in blocks:
        yield Slice(path, start, start + size, row, count, size)
        row += count


def _joined(path: str, blocks: Sequence[tuple[int, int, int]], rows: int) -> Iterator[Slice]:
    least = max(rows, -(-sum(count for _, count, _ in blocks) // COMPRESSED_PIECES))
    slices: list[Slice] = []
    for piece in _each(path, blocks):
        slices.append(piece)
        if sum(each.rows for each in slices) >= least:
            yield _one(slices)
            slices = []
    if slices:
        yield _one(slices)


def _one(pieces: Sequence[Slice]) -> Slice:
    first, last = pieces[0], pieces[-1]
    rows = sum(piece.rows for piece in pieces)
    return first._replace(stop=last.stop, rows=rows, weight=last.stop - first.start)


def _texts(piece: Slice, quoted: bool, kind: str) -> Iterator[tuple[int, bytes]]:
    """The text of a slice, some rows at a time, with the number of the first row of each."""
    row = piece.row
    try:
        for _, count, text in _blocks(piece.path, piece.start, quoted, piece.stop):
            yield row, text
            row += count
    except (OSError, ValueError, pa.ArrowException) as error:
        raise unreadable(piece.path, kind, error) from error


def _chunks(path: str, table: pa.Table, numbers: Any, bad: list[Bad], rows: int) -> Iterator[Chunk]:
    """Parsed rows in chunks; the bad rows are attached to the first."""
    batches = table.combine_chunks().to_batches() or [
        pa.RecordBatch.from_arrays([pa.array([], field.type) for field in table.schema], schema=table.schema)
    ]
    for batch in batches:
        for first in range(0, max(batch.num_rows, 1), rows):
            yield Chunk(path, numbers[first : first + rows], batch.slice(first, rows), bad)
            bad = []


class Csv:
    """Files with values between commas, semicolons or tabs, and column names in the first row; a slice counts bytes.

    All columns are text; the metadata of a field has the type with which it is kept.
    """

    kind = "a CSV file in UTF-8 whose first row names the columns"

    def schema(self, path: str) -> pa.Schema:
        names, delimiter, start = self._header(path)
        with opened_text(path, start) as file:
            head = file.read(HEAD)
        cut = _whole_rows(head, True)[0] if len(head) == HEAD else len(head)
        schema = pa.schema([(name, pa.string()) for name in names])
        found, _ = self._parsed(head[:cut], names, delimiter, schema, infer=True)
        texts, _ = self._parsed(head[:cut], names, delimiter, schema)
        return pa.schema(
            [
                pa.field(name, pa.string(), metadata={TEXT: _alias(texts[name].combine_chunks(), found[name].type)})
                for name in names
            ]
        )

    def slices(self, path: str, rows: int) -> Iterator[Slice]:
        return _pieces(path, self._header(path)[2], True, self.kind, rows)

    def read(self, piece: Slice, schema: pa.Schema, rows: int) -> Iterator[Chunk]:
        names, delimiter, _ = self._header(piece.path)
        for first, text in _texts(piece, True, self.kind):
            table, problems = self._parsed(text, names, delimiter, schema)
            numbers = np.delete(np.arange(table.num_rows + len(problems)), list(problems))
            bad = [Bad(piece.path, first + row, reason, line) for row, (reason, line) in problems.items()]
            yield from _chunks(piece.path, table.cast(schema), first + numbers, bad, rows)

    def _header(self, path: str) -> tuple[list[str], str, int]:
        """The column names, the delimiter, and the offset of the second row."""
        try:
            with opened_text(path) as file:
                head = file.read(HEAD)
            mark = 3 if head.startswith(b"\xef\xbb\xbf") else 0
            lines = (k + 1 for k in range(len(head)) if head[k] == _NEWLINE and not head[:k].count(b'"') % 2)
            end = next(lines, len(head))
            first = head[mark:end]
            text = first.decode("utf-8")
            delimiter = delimiter_of(text)
            (names,) = list(csv.reader(io.StringIO(text), delimiter=delimiter)) or [[]]
        except (OSError, ValueError, csv.Error, pa.ArrowException) as error:
            raise unreadable(path, self.kind, error) from error
        if not names or len(set(names)) < len(names):
            raise unreadable(path, self.kind, ValueError(f"its first row is {', '.join(names) or 'empty'}"))
        return names, delimiter, end

    def _parsed(
        self, text: bytes, names: list[str], delimiter: str, schema: pa.Schema, infer: bool = False
    ) -> tuple[pa.Table, dict[int, tuple[str, str]]]:
        """The columns of rows, and for each invalid row the reason and its text."""
        bad: dict[int, tuple[str, str]] = {}

        def note(row: Any) -> str:
            bad[row.number - 1] = f"it has {row.actual_columns} fields instead of {row.expected_columns}", row.text
            return "skip"

        if not text.strip() and len(names) > 1:
            return pa.table({name: pa.array([], pa.string()) for name in schema.names}), bad
        read = pa.csv.ReadOptions(column_names=names, use_threads=False, block_size=len(text) + 1)
        parse = pa.csv.ParseOptions(
            delimiter=delimiter,
            newlines_in_values=True,
            invalid_row_handler=note,
            ignore_empty_lines=len(names) > 1,  # with a single column, an empty line is an empty field
        )
        types = None if infer else {name: pa.string() for name in schema.names}
        convert = pa.csv.ConvertOptions(include_columns=schema.names, column_types=types, strings_can_be_null=False)
        try:
            return pa.csv.read_csv(pa.BufferReader(text), read, parse, convert), bad
        except pa.ArrowInvalid as error:
            if "UTF8" not in str(error):
                raise
        bad.clear()
        convert = pa.csv.ConvertOptions(
            include_columns=schema.names,
            column_types=dict.fromkeys(schema.names, pa.binary()),
            strings_can_be_null=False,
        )
        table = pa.csv.read_csv(pa.BufferReader(text), read, parse, convert)
        return _in_utf8(table, bad)


def _in_utf8(table: pa.Table, bad: dict[int, tuple[str, str]]) -> tuple[pa.Table, dict[int, tuple[str, str]]]:
    """The rows that are valid UTF-8."""
    numbers = np.delete(np.arange(table.num_rows + len(bad)), list(bad))
    good = []
    for row, fields in enumerate(zip(*(column.to_pylist() for column in table.columns), strict=True)):
        try:
            for field in fields:
                field.decode("utf-8")
            good.append(row)
        except UnicodeDecodeError:
            line = b",".join(fields).decode("utf-8", "replace")
            bad[int(numbers[row])] = "its text is not in UTF-8", line
    kept = table.take(pa.array(good, pa.int64()))
    return kept.cast(pa.schema([(name, pa.string()) for name in table.column_names])), bad


def _alias(column: Any, kind: pa.DataType) -> str:
    """The type with which a text column is kept; text that changes as numbers or booleans stays text."""
    plain = pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind)
    return str(kind) if plain and not pc.any(loses(column, kind)).as_py() else "string"


class JsonLines:
    """Files with a JSON object on each line; a slice counts bytes."""

    kind = "a file with an object of JSON on each line"

    def schema(self, path: str) -> pa.Schema:
        try:
            with opened_text(path) as file:
                head = file.read(HEAD)
            cut = head.rfind(b"\n") + 1 if len(head) == HEAD else len(head)
            objects = [each for line in head[:cut].splitlines() if isinstance(each := _object(line), dict)]
            if not objects:
                raise ValueError("none of its first lines is an object")
            names = list(dict.fromkeys(name for each in objects for name in each))
            return pa.schema([(name, _type([each.get(name) for each in objects])) for name in names])
        except (OSError, ValueError, pa.ArrowException) as error:
            raise unreadable(path, self.kind, error) from error

    def slices(self, path: str, rows: int) -> Iterator[Slice]:
        return _pieces(path, 0, False, self.kind, rows)

    def read(self, piece: Slice, schema: pa.Schema, rows: int) -> Iterator[Chunk]:
        for first, text in _texts(piece, False, self.kind):
            table, numbers, bad = self._parsed(text, schema) or self._line_by_line(piece.path, text, schema)
            yield from _chunks(piece.path, table, first + numbers, [b._replace(row=first + b.row) for b in bad], rows)

    def _parsed(self, text: bytes, schema: pa.Schema) -> tuple[pa.Table, Any, list[Bad]] | None:
        """The rows of a text, their numbers and no bad ones; None if some line is not a JSON object."""
        lines = text.count(b"\n") + (not text.endswith(b"\n"))
        parse = pa.json.ParseOptions(explicit_schema=schema, unexpected_field_behavior="ignore")
        read = pa.json.ReadOptions(use_threads=False, block_size=len(text) + 1)
        try:
            table = pa.json.read_json(pa.BufferReader(text), read, parse)
        except pa.ArrowException:
            return None
        return (table, np.arange(lines), []) if table.num_rows == lines else None

    def _line_by_line(self, path: str, text: bytes, schema: pa.Schema) -> tuple[pa.Table, Any, list[Bad]]:
        good: list[dict[str, Any]] = []
        numbers, bad = [], []
        for row, line in enumerate(text.splitlines()):
            if not line.strip():
                continue
            found = _object(line)
            reason = found if isinstance(found, str) else _misfit(found, schema)
            if reason:
                bad.append(Bad(path, row, reason, line[:10_000].decode("utf-8", "replace")))
            elif isinstance(found, dict):
                good.append(found)
                numbers.append(row)
        columns = [pa.array([each.get(field.name) for each in good], field.type) for field in schema]
        return pa.table(columns, schema=schema), np.asarray(numbers, np.int64), bad


def _object(line: bytes) -> dict[str, Any] | str:
    """The object of a line, or the reason why it is invalid."""
    try:
        result = json.loads(line)
    except (ValueError, RecursionError) as error:
        return f"it is not JSON: {error}"
    return result if isinstance(result, dict) else "it is not a JSON object"


def _misfit(found: dict[str, Any], schema: pa.Schema) -> str:
    for field in schema:
        value = found.get(field.name)
        try:
            if isinstance(value, bool) and not pa.types.is_boolean(field.type):
                raise pa.ArrowInvalid
            pa.array([value], field.type)
        except (pa.ArrowException, TypeError, ValueError, OverflowError):
            return f'column "{field.name}": {json.dumps(value)[:80]} is not a value of {field.type}'
    return ""


def _type(values: list[Any]) -> pa.DataType:
    """The type of most of the first values, so that a single wrong value does not determine it."""
    kinds: dict[pa.DataType, int] = {}
    try:
        return pa.infer_type([value for value in values if value is not None])
    except pa.ArrowException:
        for value in values:
            kind = pa.infer_type([value])
            if value is not None:
                kinds[kind] = kinds.get(kind, 0) + 1
        floats = kinds.pop(pa.float64(), 0)
        if floats:
            kinds[pa.float64()] = floats + kinds.pop(pa.int64(), 0)
        return max(kinds, key=kinds.__getitem__)
