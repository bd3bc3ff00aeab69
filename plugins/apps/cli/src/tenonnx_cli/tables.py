"""Outputs as tables: a row of named columns for each sample."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tenonnx import InvalidCall
from tenonnx.tools import import_optional, write_bytes

#: Characters with which spreadsheets begin a formula.
_FORMULAS = ("=", "+", "-", "@", "\t", "\r")

#: Suffix of the other table format.
PARQUET = ".parquet"


def write_table(path: str, results: Mapping[str, Any]) -> None:
    """Write outputs to a CSV or Parquet file with a row for each sample, atomically.

    Several numbers of a sample become columns ``name[0]``, ``name[1]`` ...; maps become columns ``name[key]``. Raises
    ``InvalidCall`` for outputs that do not have one entry for each sample.
    """
    columns: dict[str, Sequence[Any]] = {}
    for name, contents in results.items():
        columns.update(_columns_of(name, contents))
    lengths = {name: len(column) for name, column in columns.items()}
    if len(set(lengths.values())) > 1:
        raise InvalidCall(
            "the outputs for a table have different numbers of rows",
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
    """Prefix text with an apostrophe if a spreadsheet would take it for a formula; spreadsheets hide the apostrophe."""
    return f"'{field}" if isinstance(field, str) and field.startswith(_FORMULAS) else field


def _parquet(columns: Mapping[str, Sequence[Any]]) -> bytes:
    install = "tenonnx[parquet]"
    parquet = import_optional("pyarrow.parquet", "write a Parquet file", install=install, otherwise="write .csv")
    import pyarrow

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
