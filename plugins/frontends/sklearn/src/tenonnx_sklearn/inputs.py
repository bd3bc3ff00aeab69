"""Conversion of rows to feeds: pandas, polars and Arrow tables, dicts, matrices and lists of strings."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from tenonnx.extend import DType, Graph, InvalidCall
from tenonnx_sklearn.tables import BOOLEAN, FLOAT, INTEGER, TEXT
from tenonnx_sklearn.untabular import feeds_of

Array = np.ndarray[Any, Any]


def feeds(graph: Graph, rows: Any) -> dict[str, Array]:
    """Feeds of ``graph`` for rows: a table of pandas, polars or Arrow, a dict, a matrix, or strings.

    Missing numbers (NaN, None, NA) become NaN, missing strings empty strings. Columns of a table are matched with
    inputs by name. Raises ``InvalidCall`` for a missing column, and for contents that do not fit the type of the input.
    """
    inputs = graph.inputs
    fed = feeds_of(inputs, rows)
    if fed is not None:
        return fed
    if len(inputs) == 1 and inputs[0].rank == 1:
        return {inputs[0].name: _cast(documents(rows), inputs[0].dtype, inputs[0].name)}
    found = columns(rows)
    alone = len(found) == 1 and inputs[0].name not in found  # a matrix of one column, whose name in the table differs
    if len(inputs) == 1 and (inputs[0].shape[1] != 1 or alone):
        cast = [_cast(column, inputs[0].dtype, name) for name, column in found.items()]
        empty = np.empty((0, len(cast)), inputs[0].dtype.numpy)
        return {inputs[0].name: np.stack(cast, axis=1) if cast else empty}
    names = [value.name for value in inputs]
    if not is_named(rows) or spelled(found) == names:
        found = dict(zip(names, found.values(), strict=False))
    missing = [name for name in names if name not in found]
    if missing:
        raise InvalidCall(
            "rows lack a column of an input",
            given=f"none named {', '.join(missing)}",
            available=", ".join(found),
        )
    return {value.name: _cast(found[value.name], value.dtype, value.name)[:, None] for value in inputs}


def is_named(rows: Any) -> bool:
    """Whether rows have column names."""
    return isinstance(rows, Mapping) or hasattr(rows, "columns")


def spelled(names: Iterable[str]) -> list[str]:
    """Names of columns as LightGBM stores them, with underscores for whitespace."""
    return [re.sub(r"\s", "_", name) for name in names]


def is_table(rows: Any) -> bool:
    return is_named(rows) or (hasattr(rows, "ndim") and rows.ndim == 2)


def documents(rows: Any) -> Array:
    """Strings as a vector; missing ones are empty."""
    if is_named(rows):
        return next(iter(columns(rows).values()))
    return np.asarray(["" if is_missing(text) else str(text) for text in rows], object).reshape(-1)


def columns(rows: Any) -> dict[str, Array]:
    """The columns by name, each as bool, int64, float64, or strings as objects."""
    if hasattr(rows, "toarray"):
        rows = rows.toarray()
    if isinstance(rows, Mapping):
        return {str(name): _plain(each) for name, each in rows.items()}
    if hasattr(rows, "column_names"):  # Arrow
        return {str(name): _plain(rows.column(name).to_pylist()) for name in rows.column_names}
    if hasattr(rows, "columns"):  # pandas, polars
        return {str(name): _plain(rows[name]) for name in rows.columns}
    matrix = np.asarray(rows)
    if matrix.ndim != 2:
        raise InvalidCall(
            "rows are neither a table nor a matrix",
            given=f"{type(rows).__name__} of rank {matrix.ndim}",
            do="give a single column as a table, or as a matrix of one column",
        )
    return {f"x{k}": _plain(matrix[:, k]) for k in range(matrix.shape[1])}


def kinds(rows: Any) -> list[str]:
    """The kind of each column of an example."""
    by_letter = {"b": BOOLEAN, "i": INTEGER, "u": INTEGER, "f": FLOAT, "O": TEXT}
    return [by_letter[column.dtype.kind] for column in columns(rows).values()]


def beyond_float32(rows: Any) -> bool:
    """Whether rows have 64-bit numbers, so that an estimator may compute beyond float32 precision."""
    if not is_table(rows) and not hasattr(rows, "toarray") and not hasattr(rows, "column_names"):
        return False
    return any(column.dtype.kind in "if" and column.dtype.itemsize == 8 for column in columns(rows).values())


def is_missing(each: Any) -> bool:
    """Whether an element is None, NaN, pandas NA or NaT."""
    return each is None or type(each).__name__ in ("NAType", "NaTType") or each != each


def _plain(column: Any) -> Array:
    dtype = str(getattr(column, "dtype", ""))
    if isinstance(column, np.ndarray) and column.dtype.kind in "biuf":
        return column if column.dtype.kind in "bf" else column.astype(np.int64)
    column = np.asarray(column) if dtype in ("float32", "float64", "int64", "bool") else column
    if isinstance(column, np.ndarray) and column.dtype.kind in "biuf":
        return column
    found = [each.item() if isinstance(each, np.generic) else each for each in list(column)]
    missing = [is_missing(each) for each in found]
    present = [each for each, gone in zip(found, missing, strict=True) if not gone]
    if any(isinstance(each, str) for each in present) or np.asarray(present).dtype.kind not in "biuf":  # dates, too
        return np.asarray(["" if gone else str(each) for each, gone in zip(found, missing, strict=True)], object)
    if not present and (not found or dtype.lower() in ("object", "str", "string", "category")):
        return np.asarray([""] * len(found), object)
    if any(missing):
        return np.asarray([np.nan if gone else float(e) for e, gone in zip(found, missing, strict=True)])
    array = np.asarray(present)
    return array.astype(np.int64) if array.dtype.kind in "iu" else array


def _cast(column: Array, dtype: DType, name: str) -> Array:
    if dtype is DType.string:
        return column if column.dtype == object else np.asarray([str(each) for each in column.tolist()], object)
    if column.dtype == object and (column == "").all():
        column = np.full(len(column), np.nan)
    if column.dtype == object:
        raise InvalidCall(f'input "{name}" of numbers got a feed of strings')
    if column.dtype.kind == "f" and not dtype.is_float and np.isnan(column).any():
        raise InvalidCall(
            f'input "{name}" is {dtype}, which has no missing values',
            given="a missing value",
            do="give tx.load an example of the rows in which one is missing",
        )
    return column.astype(dtype.numpy)
