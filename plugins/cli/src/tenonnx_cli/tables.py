"""Tables of text: a row of named columns for each sample, as contents of inputs and outputs."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tenonnx import DType, Graph, InvalidCall, TensorType, Value
from tenonnx.tools import installing, write_bytes
from tenonnx_cli.fields import BOOLS, field_parser
from tenonnx_cli.output import complain_of_unused, data_file

#: What may stand between fields; the one that is most frequent in the first row does.
_DELIMITERS = ",;\t"

#: What a spreadsheet begins a formula with.
_FORMULAS = ("=", "+", "-", "@", "\t", "\r")

#: How the other kind of table is called.
PARQUET = ".parquet"


def is_table(path: str) -> bool:
    """Whether a file is a CSV file, by its name or, from standard input, because it is no file of numpy."""
    if path == "-":
        return not data_file(path).read(8).startswith((b"PK", b"\x93NUMPY"))
    return path.lower().endswith(".csv")


def read_table(graph: Graph, path: str) -> dict[str, Any]:
    """Contents of all inputs from a CSV file whose first row names the columns.

    A model with one input a column takes the columns of those names, and it is said which are left out; one with a
    single input of several features takes all columns in their order. An empty field is NaN in a column of floats.
    Raises ``InvalidCall`` for a column that is missing, and for a field that is no value of the column's type, with its
    line.
    """
    return table_feeds(graph, read_columns(path), path)


def table_feeds(graph: Graph, columns: Mapping[str, Mapping[int, str]], path: str) -> dict[str, Any]:
    """``read_table`` of columns that were read from ``path``."""
    inputs = [value for value in graph.all_inputs if value.data is None or value.name in columns]
    missing = [value.name for value in inputs if value.name not in columns]
    if len(inputs) == 1 and missing and _width(inputs[0]) != 1:
        return {inputs[0].name: _together(inputs[0], columns, path)}
    if missing:
        raise InvalidCall(
            f'{path} must have a column "{missing[0]}"',
            given=", ".join(columns),
            available=", ".join(f"{value.name}: {value.type}" for value in inputs),
            do="the first row must name the columns like the inputs of the model",
        )
    names = [value.name for value in inputs]
    complain_of_unused(path, [name for name in columns if name not in names])
    return {value.name: _column(value, value.name, columns[value.name], path) for value in inputs}


def read_columns(path: str) -> dict[str, dict[int, str]]:
    """The fields of each column by the line of the file that they are in."""
    try:
        with io.TextIOWrapper(data_file(path), "utf-8-sig", newline="") as file:
            first = file.readline()
            file.seek(0)
            reader = csv.reader(file, strict=True, delimiter=max(_DELIMITERS, key=first.count))
            (_, header), *rows = [(reader.line_num, row) for row in reader if row]
    except OSError as error:
        raise InvalidCall(f'"{path}" must be a file that can be read', given=error.strerror or str(error)) from error
    except (ValueError, csv.Error) as error:
        raise InvalidCall(
            f'"{path}" must be a CSV file in UTF-8 whose first row names the columns', given=str(error)
        ) from error
    uneven = [f"line {line} has {len(row)} fields" for line, row in rows if len(row) != len(header)]
    if uneven or len(set(header)) < len(header) or not rows:
        problem = uneven[0] if uneven else f"{len(rows)} rows"
        raise InvalidCall(
            f'"{path}" must have rows as long as the first row, and distinct column names',
            given=f"{problem}; the first row is {', '.join(header)}",
        )
    return {name: {line: row[k] for line, row in rows} for k, name in enumerate(header)}


def _width(value: Value) -> Any:
    """How many features an input takes, None where that is open."""
    shape = value.tensor.shape
    return None if shape is None else 1 if len(shape) < 2 else shape[1]


def _together(value: Value, columns: Mapping[str, Mapping[int, str]], path: str) -> Any:
    width = _width(value)
    if isinstance(width, int) and width != len(columns):
        raise InvalidCall(
            f'{path} must have {width} columns for the input "{value.name}"',
            given=", ".join(columns),
            available=f"{value.name}: {value.type}",
        )
    parsed = [parse_column(value, name, fields, path) for name, fields in columns.items()]
    return np.stack(parsed, axis=1)


def _column(value: Value, name: str, fields: Mapping[int, str], path: str) -> Any:
    array = parse_column(value, name, fields, path)
    shape = value.tensor.shape
    return array.reshape(-1, *[1] * (len(shape) - 1)) if shape is not None and len(shape) > 1 else array


def parse_column(value: Value, name: str, fields: Mapping[int, str], path: str) -> Any:
    """The fields of the column ``name``, by line of the file, as an array of the type of ``value``."""
    kind = value.type
    if not isinstance(kind, TensorType):
        raise InvalidCall(f'input "{value.name}" is {kind}, which no column of a table can hold')
    if kind.dtype is DType.string:
        return np.array(list(fields.values()), dtype=object)
    parse = field_parser(kind.dtype)
    found = np.empty(len(fields), kind.dtype.numpy)
    for row, (line, field) in enumerate(fields.items()):
        try:
            trimmed = field.strip()
            found[row] = float("nan") if kind.dtype.is_float and not trimmed else parse(trimmed)
        except (ValueError, KeyError, OverflowError) as error:
            raise InvalidCall(
                f'{path}: line {line}, column "{name}" must be a value of {kind.dtype}',
                given=repr(field),
                available=_fields(kind.dtype),
                do="correct the field",
            ) from error
    return found


def _fields(dtype: DType) -> str:
    """What a field of a column may be."""
    if dtype is DType.bool:
        return ", ".join(BOOLS)
    return "a number, or nothing for NaN" if dtype.is_float else "a whole number that the type has"


def write_table(path: str, results: Mapping[str, Any]) -> None:
    """Write outputs as a CSV or Parquet file with a row for each sample; whole or not at all.

    Several numbers of a sample are columns ``name[0]``, ``name[1]`` ...; maps are columns ``name[key]``. Raises
    ``InvalidCall`` for outputs that do not have one entry for each sample.
    """
    columns: dict[str, Sequence[Any]] = {}
    for name, contents in results.items():
        columns.update(_columns_of(name, contents))
    lengths = {name: len(column) for name, column in columns.items()}
    if len(set(lengths.values())) > 1:
        raise InvalidCall(
            "the outputs in a table must have the same number of rows",
            given=", ".join(f"{name}: {length}" for name, length in lengths.items()),
            do="write them to a .npz file",
        )
    write_bytes(path, [_parquet(columns) if path.lower().endswith(PARQUET) else _csv(columns)])


def _csv(columns: Mapping[str, Sequence[Any]]) -> bytes:
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(map(_harmless, columns))
    writer.writerows(map(_harmless, row) for row in zip(*columns.values(), strict=True))
    return text.getvalue().encode("utf-8")


def _harmless(field: Any) -> Any:
    """A text as no spreadsheet takes it for a formula: behind an apostrophe, which such programs do not show."""
    return f"'{field}" if isinstance(field, str) and field.startswith(_FORMULAS) else field


def _parquet(columns: Mapping[str, Sequence[Any]]) -> bytes:
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError as error:
        raise InvalidCall(
            "writing a Parquet file needs the package pyarrow",
            do=f"{installing('tenonnx[parquet]')}, or write .csv",
        ) from error
    file = io.BytesIO()
    parquet.write_table(pyarrow.table(dict(columns)), file)
    return file.getvalue()


def _columns_of(name: str, contents: Any) -> dict[str, Sequence[Any]]:
    if isinstance(contents, np.ndarray) and 1 <= contents.ndim <= 2:
        if contents.ndim == 1 or contents.shape[1] == 1:
            return {name: contents.reshape(-1).tolist()}
        return {f"{name}[{k}]": contents[:, k].tolist() for k in range(contents.shape[1])}
    if isinstance(contents, list) and contents and all(isinstance(each, dict) for each in contents):
        keys = list(dict.fromkeys(key for each in contents for key in each))
        return {f"{name}[{key}]": [each.get(key) for each in contents] for key in keys}
    raise InvalidCall(
        f'output "{name}" has no rows to write into a table',
        given=f"shape {list(contents.shape)}" if isinstance(contents, np.ndarray) else type(contents).__name__,
        do="write it to a .npz file",
    )
