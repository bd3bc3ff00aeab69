"""CSV files read as a whole, without pyarrow: the fields of each column by line."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping

import numpy as np

from tenonnx.extend import DType, InvalidCall, did_you_mean_file
from tenonnx_data.binding import Field
from tenonnx_data.fields import BOOLS, MISSING, delimiter_of, field_parser
from tenonnx_data.table import Array, Opener, Table, opened_file


class CsvTable(Table):
    """A CSV file with column names in the first row. An empty field, NA and the like are NaN among floats."""

    def __init__(self, path: str, opened: Opener = opened_file) -> None:
        self.path, self._columns = path, _fields(path, opened)
        self.fields = [Field(name, "parsed", "text") for name in self._columns]

    def column(self, name: str, dtype: DType) -> Array:
        return parsed(self._columns[name], dtype, f'{self.path}: line {{}}, column "{name}"')

    def is_text(self, name: str) -> bool:
        """Whether no field of a column is a number."""
        parse = field_parser(DType.float64)
        for field in self._columns[name].values():
            try:
                parse(field.strip())
            except (ValueError, OverflowError):
                continue
            return False
        return True

    def location(self, row: int) -> str:
        line = list(next(iter(self._columns.values())))[row]
        return f"line {line} of {self.path}"


def _fields(path: str, opened: Opener) -> dict[str, dict[int, str]]:
    """The fields of each column by line number."""
    try:
        with io.TextIOWrapper(opened(path), "utf-8-sig", newline="") as file:
            first = file.readline()
            file.seek(0)
            reader = csv.reader(file, strict=True, delimiter=delimiter_of(first))
            lines = [(reader.line_num, row) for row in reader]
            (_, header), *rows = lines if lines and len(lines[0][1]) == 1 else [each for each in lines if each[1]]
            rows = [(line, row or [""]) for line, row in rows]  # with a single column, an empty line is an empty field
    except OSError as error:
        what = f'cannot read "{path}": {error.strerror or error}'
        raise InvalidCall(what, do=did_you_mean_file(path)) from error
    except (ValueError, csv.Error) as error:
        raise InvalidCall(
            f'"{path}" is not a CSV file in UTF-8 whose first row names the columns', given=str(error)
        ) from error
    uneven = [f"line {line} has {len(row)} fields" for line, row in rows if len(row) != len(header)]
    if uneven or len(set(header)) < len(header) or not rows:
        problem = uneven[0] if uneven else f"{len(rows)} rows"
        raise InvalidCall(
            f'"{path}" has rows of different lengths, or two columns of one name',
            given=f"{problem}; the first row is {', '.join(header)}",
        )
    return {name: {line: row[k] for line, row in rows} for k, name in enumerate(header)}


def parsed(fields: Mapping[int, str], dtype: DType, place: str) -> Array:
    """The fields of a column as an array of ``dtype``; ``place`` is a format string with the line, for messages."""
    if dtype is DType.string:
        return np.array(list(fields.values()), dtype=object)
    parse = field_parser(dtype)
    result = np.empty(len(fields), dtype.numpy)
    for row, (line, field) in enumerate(fields.items()):
        try:
            trimmed = field.strip()
            number = float("nan") if dtype.is_float and trimmed in MISSING else parse(trimmed)
            with np.errstate(over="ignore"):
                result[row] = number
            if dtype.is_float and np.isfinite(number) and not np.isfinite(result[row]):
                raise OverflowError(field)
        except (ValueError, KeyError, OverflowError) as error:
            raise InvalidCall(
                f"{place.format(line)} is not a value of {dtype}",
                given=repr(field),
                available=_valid_fields(dtype),
                do="correct the field",
            ) from error
    return result


def _valid_fields(dtype: DType) -> str:
    """Description of a valid field of a column."""
    if dtype is DType.bool:
        return ", ".join(BOOLS)
    return "a number, or nothing for NaN" if dtype.is_float else "a whole number that the type has"
