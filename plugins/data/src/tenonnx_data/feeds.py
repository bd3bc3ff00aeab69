"""Arrow batches as feeds of a model: arrays for valid rows, and reasons for the others."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tenonnx.extend import DType
from tenonnx_data.binding import Binding, Bound, in_dims
from tenonnx_data.columns import TEXT, Array, Reasons, elements, is_list, is_text, loses, tensors
from tenonnx_data.encoded import Pixels, decoded
from tenonnx_data.fields import MISSING


class Group(NamedTuple):
    """Rows of a batch that are fed together, as their tensors have equal dims: their indices, and the feeds."""

    rows: Array
    feeds: dict[str, Array]


class Prepared(NamedTuple):
    """A batch that is ready to be fed: its number of rows, its kept columns, and the feeds of valid rows."""

    rows: int
    kept_columns: list[Any]
    groups: list[Group]
    bad: Reasons


def prepared(binding: Binding, batch: pa.RecordBatch, pixels: Pixels) -> Prepared:
    """Convert the rows of a batch to feeds."""
    bad: Reasons = {}
    kept = [_kept(batch.schema.field(name), _of_name(batch, name), bad) for name in binding.keep]
    parts: dict[str, Array | list[Array | None]] = {}
    for bound in binding.inputs:
        reasons: Reasons = {}
        parts[bound.name] = _input(bound, batch, pixels, reasons)
        for row, reason in reasons.items():
            bad.setdefault(row, reason)
    good = np.arange(batch.num_rows)
    if bad:
        good = np.delete(good, list(bad))
    return Prepared(batch.num_rows, kept, _grouped(parts, good), bad)


def kept_field(field: pa.Field) -> pa.Field:
    """The output field of a kept column; a column of a text file gets its inferred type."""
    said = (field.metadata or {}).get(TEXT)
    return pa.field(field.name, field.type if said is None else pa.type_for_alias(said.decode()))


def _of_name(batch: pa.RecordBatch, name: str) -> Any:
    return batch.column(batch.schema.get_field_index(name))


def _kept(field: pa.Field, column: Any, bad: Reasons) -> Any:
    """A kept column; a field of a text file that does not have the column's type invalidates its row."""
    kind = kept_field(field).type
    if kind == field.type:
        return column
    blank = pc.is_in(column, value_set=pa.array(MISSING, column.type))
    column = pc.if_else(pc.fill_null(blank, True), pa.scalar(None, column.type), column)
    for row in np.flatnonzero(loses(column, kind).to_numpy(zero_copy_only=False)).tolist():
        bad.setdefault(row, f'column "{field.name}": {column[row].as_py()[:80]!r} loses digits as {kind}')
    try:
        return column.cast(kind)
    except pa.ArrowInvalid:
        values = []
        for row, each in enumerate(column):
            try:
                values.append(each.cast(kind))
            except pa.ArrowInvalid:
                values.append(pa.scalar(None, kind))
                bad.setdefault(row, f'column "{field.name}": {each.as_py()[:80]!r} is not a value of {kind}')
        return pa.array([value.as_py() for value in values], kind)


def _input(bound: Bound, batch: pa.RecordBatch, pixels: Pixels, reasons: Reasons) -> Array | list[Array | None]:
    found = [_column(bound, name, batch, pixels, reasons) for name in bound.columns]
    if bound.is_concatenated:
        return np.stack([each for each in found if isinstance(each, np.ndarray)], axis=1)
    one = found[0]
    if isinstance(one, np.ndarray):
        return _shaped(one, bound, reasons)
    for row, each in enumerate(one):
        if each is not None and row not in reasons and (problem := _problem(each.shape, bound)):
            reasons[row] = problem
    return one


def _column(
    bound: Bound, name: str, batch: pa.RecordBatch, pixels: Pixels, reasons: Reasons
) -> Array | list[Array | None]:
    field, column = batch.schema.field(name), _of_name(batch, name)
    own: Reasons = {}
    result: Array | list[Array | None]
    binary = pa.types.is_binary(column.type) or pa.types.is_large_binary(column.type)
    if binary and bound.dtype is not DType.string:
        result = decoded(column.to_pylist(), bound, pixels, own)
    elif is_list(column.type):
        result = tensors(column, bound.dtype, own)
    else:
        result = elements(column, bound.dtype, is_text(field), own)
    for row, reason in own.items():
        reasons.setdefault(row, f'column "{name}": {reason}')
    return result


def _shaped(array: Array, bound: Bound, reasons: Reasons) -> Array:
    """An array of all rows with the dims of the input."""
    array = in_dims(array, bound)
    if len(array) and (problem := _problem(array.shape[1:], bound)):
        for row in range(len(array)):
            reasons.setdefault(row, problem)
    return array


def _problem(shape: tuple[int, ...], bound: Bound) -> str:
    """Reason why a tensor of this shape is not valid for a row of an input, empty if it is."""
    fits = len(shape) == len(bound.dims) and all(
        dim in (None, size) for dim, size in zip(bound.dims, shape, strict=True)
    )
    if fits:
        return ""
    wanted = ", ".join("?" if dim is None else str(dim) for dim in bound.dims)
    return f'column "{bound.columns[0]}" has the shape {list(shape)}, and the input "{bound.name}" takes [{wanted}]'


def _grouped(parts: Mapping[str, Any], good: Array) -> list[Group]:
    """The valid rows, grouped by the dims of their tensors."""
    if not len(good):
        return []
    lists = {name: part for name, part in parts.items() if isinstance(part, list)}
    if not lists:
        whole = all(len(good) == len(part) for part in parts.values())
        return [Group(good, {name: part if whole else part[good] for name, part in parts.items()})]
    alike: dict[tuple[Any, ...], list[int]] = {}
    for row in good.tolist():
        alike.setdefault(tuple(part[row].shape for part in lists.values()), []).append(row)
    return [
        Group(
            np.asarray(rows),
            {
                name: np.stack([part[row] for row in rows]) if isinstance(part, list) else part[rows]
                for name, part in parts.items()
            },
        )
        for rows in alike.values()
    ]
