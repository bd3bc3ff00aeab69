"""Arrow columns as arrays of an element type, and the rows that cannot be converted."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tenonnx.extend import DType
from tenonnx_data.binding import Field
from tenonnx_data.fields import MISSING, NUMBER, field_parser

Array = np.ndarray[Any, Any]

#: Errors by row.
Reasons = dict[int, str]

#: Metadata key of a text-file column; the value is the type for writing it if it is kept.
TEXT = b"tenonnx.text"

#: Metadata key of a column that is defined by folder names and read only on request.
FOLDER = b"tenonnx.folder"


def is_text(field: pa.Field) -> bool:
    return TEXT in (field.metadata or {})


def is_folder(field: pa.Field) -> bool:
    return FOLDER in (field.metadata or {})


def columns_of(schema: pa.Schema) -> list[Field]:
    """The columns of a schema, for binding to inputs."""
    return [_field(field) for field in schema]


def _field(field: pa.Field) -> Field:
    if is_text(field):
        return Field(field.name, "parsed", str(field.type), 0, is_folder(field))
    found, lists = field.type, 0
    while _is_list(found):
        found, lists = found.value_type, lists + 1
    if pa.types.is_dictionary(found):
        found = found.value_type
    kinds = {
        "tensor": isinstance(found, pa.BaseExtensionType),
        "text": pa.types.is_string(found) or pa.types.is_large_string(found) or pa.types.is_string_view(found),
        "binary": pa.types.is_binary(found) or pa.types.is_large_binary(found),
        "missing": pa.types.is_null(found),
        "number": pa.types.is_integer(found)
        or pa.types.is_floating(found)
        or pa.types.is_boolean(found)
        or pa.types.is_decimal(found),
    }
    kind = next((name for name, holds in kinds.items() if holds), "")
    return Field(field.name, kind, str(field.type), lists, is_folder(field))


def elements(column: Any, dtype: DType, text: bool, reasons: Reasons) -> Array:
    """A column of single values as an array; invalid rows are recorded in ``reasons`` and have arbitrary elements.

    A missing number is NaN among floats; missing text is empty. Numbers are rounded to narrower floats; to integers
    only if they are whole.
    """
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if dtype is DType.string:
        return _texts(column)
    if text:
        return _parsed(column, dtype, reasons)
    if pa.types.is_decimal(column.type):
        column = column.cast(pa.float64(), safe=False) if dtype.is_float else _whole(column, dtype, reasons)
    if not column.null_count:
        return fitting(_array(column), dtype, reasons)
    missing = column.is_null().to_numpy(zero_copy_only=False)
    if not dtype.is_float:
        for row in np.flatnonzero(missing):
            reasons[int(row)] = f"it is missing, and {dtype} has no value for that"
    column = column.cast(pa.float64()) if pa.types.is_null(column.type) else column
    column = column.fill_null(np.nan if pa.types.is_floating(column.type) else _zero(column.type))
    cast = fitting(_array(column), dtype, reasons)
    if dtype.is_float:
        cast = cast.copy() if not cast.flags.writeable else cast
        cast[missing] = np.nan
    return cast


def _array(column: Any) -> Array:
    """The elements of a column without nulls. pyarrow imports pandas for its own conversions, DLPack does not."""
    dlpack = pa.types.is_integer(column.type) or pa.types.is_floating(column.type)
    return np.from_dlpack(column) if dlpack else column.to_numpy(zero_copy_only=False)


def number_column(array: Array) -> Any:
    """Numbers along one axis as an Arrow column that shares their memory; it imports no pandas."""
    array = np.ascontiguousarray(array)
    if array.dtype.kind == "b":  # bits in Arrow
        return pa.array(array)
    return pa.Array.from_buffers(pa.from_numpy_dtype(array.dtype), len(array), [None, pa.py_buffer(array)])


def _whole(column: Any, dtype: DType, reasons: Reasons) -> Any:
    """Decimals as integers, without loss of digits."""
    kind = pa.uint64() if dtype is DType.uint64 else pa.int64()
    try:
        return column.cast(kind)
    except pa.ArrowInvalid:
        found = []
        for row, value in enumerate(column):
            try:
                found.append(value.cast(kind).as_py())
            except pa.ArrowInvalid:
                reasons[row] = f"{value} is not a value of {dtype}"
                found.append(0)
        return pa.array(found, kind)


def _zero(kind: pa.DataType) -> Any:
    return False if pa.types.is_boolean(kind) else 0


def _texts(column: Any) -> Array:
    if pa.types.is_null(column.type):
        return np.full(len(column), "", object)
    column = column.cast(pa.large_string()) if pa.types.is_string_view(column.type) else column
    filled = column.fill_null(b"" if pa.types.is_binary(column.type) else "")
    return np.asarray(filled.to_numpy(zero_copy_only=False), object)


def fitting(array: Array, dtype: DType, reasons: Reasons) -> Array:
    """Cast numbers to another type; those that do not fit are recorded in ``reasons``."""
    wanted = dtype.numpy
    if array.dtype == wanted:
        return array
    with np.errstate(all="ignore"):
        if dtype is DType.bool:
            cast = array.astype(bool)
            bad = (array != 0) & (array != 1)
        elif dtype.is_float:
            cast = array.astype(wanted)
            bad = ~np.isfinite(cast) if array.dtype.kind in "iu" else np.isfinite(array) & ~np.isfinite(cast)
        else:
            cast = array.astype(wanted)
            back = cast.astype(array.dtype)
            bad = (back != array) | ((cast < 0) != (array < 0))
            if array.dtype.kind == "f":
                bad |= ~np.isfinite(array) | (np.abs(array) >= 2.0**63)
    for row in np.flatnonzero(bad):
        reasons[int(row)] = f"{array[row]!s} is not a value of {dtype}"
    return cast


def _parsed(column: Any, dtype: DType, reasons: Reasons) -> Array:
    """Fields of a text file, parsed as numbers."""
    trimmed = pc.utf8_trim_whitespace(column)
    absent = pc.is_in(trimmed, value_set=pa.array(MISSING, trimmed.type))
    if dtype is not DType.bool:
        filled = pc.if_else(pc.fill_null(absent, True), pa.scalar(None, trimmed.type), trimmed)
        try:
            numbers = filled.cast(pa.float64() if dtype.is_float else pa.int64())
        except pa.ArrowInvalid:
            pass  # some field is not such a number
        else:
            if not pc.any(_parsed_differently(filled, numbers)).as_py():
                return elements(numbers, dtype, False, reasons)
    result = np.zeros(len(column), dtype.numpy)
    parse = field_parser(dtype)
    for row, field in enumerate(trimmed.to_pylist()):
        if field is None or field in MISSING:
            if dtype.is_float:
                result[row] = np.nan
            else:
                reasons[row] = f"it is missing, and {dtype} has no value for that"
            continue
        try:
            with np.errstate(all="ignore"):
                result[row] = number = parse(field)
            if dtype.is_float and np.isfinite(number) and not np.isfinite(result[row]):
                raise OverflowError
        except (ValueError, KeyError, OverflowError):
            reasons[row] = f"{field[:80]!r} is not a value of {dtype}"
    return result


def _parsed_differently(texts: Any, numbers: Any) -> Any:
    """Mask of fields that Arrow parses but ``field_parser`` does not: 0x10, and 1e400 as infinity."""
    if pa.types.is_integer(numbers.type):
        return pc.match_substring(texts, "x", ignore_case=True)
    return pc.and_(pc.is_inf(numbers), pc.match_substring_regex(texts, NUMBER))


#: Text that numbers do not preserve: leading zeros, and digits beyond float precision.
_LOST = {"int": r"^\s*[+-]?0[0-9]", "float": r"^\s*[+-]?(0[0-9]|[0-9]{16})"}


def loses(column: Any, kind: pa.DataType) -> Any:
    """Mask of text fields that change if parsed as numbers: 0123, for example postal codes."""
    if not pa.types.is_integer(kind) and not pa.types.is_floating(kind):
        return pa.array(np.zeros(len(column), bool))
    return pc.fill_null(pc.match_substring_regex(column, _LOST["int" if pa.types.is_integer(kind) else "float"]), False)


def tensors(column: Any, dtype: DType, reasons: Reasons) -> Array | list[Array | None]:
    """A column of lists as one array with a row for each, or as a list of arrays if their lengths differ.

    Rows that are missing or have an invalid element are recorded in ``reasons``.
    """
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    if isinstance(column.type, pa.FixedShapeTensorType):
        flat = tensors(column.storage, dtype, reasons)
        assert isinstance(flat, np.ndarray)
        return flat.reshape(len(column), *column.type.shape)
    if isinstance(column, pa.ExtensionArray):
        return fitting(np.stack([np.asarray(each) for each in column.to_numpy(zero_copy_only=False)]), dtype, reasons)
    for absent in np.flatnonzero(column.is_null().to_numpy(zero_copy_only=False)):
        reasons[int(absent)] = "the list is missing"
    if pa.types.is_fixed_size_list(column.type):
        size = column.type.list_size
        within: Any = column.values.slice(column.offset * size, len(column) * size)
        ends = np.arange(len(column) + 1) * size
    else:
        offsets = column.offsets.to_numpy()
        within = column.values.slice(offsets[0], offsets[-1] - offsets[0])
        ends = offsets - offsets[0]
    inner: Reasons = {}
    contents = tensors(within, dtype, inner) if _is_list(within.type) else elements(within, dtype, False, inner)
    for place, reason in inner.items():
        row = int(np.searchsorted(ends, place, side="right")) - 1
        if row not in reasons:
            reasons[row] = f"element {place - ends[row]}: {reason}"
    lengths = np.diff(ends)
    good = [row for row in range(len(column)) if row not in reasons] if reasons else None
    known = lengths if good is None else lengths[good]
    if isinstance(contents, np.ndarray) and len(set(known.tolist())) <= 1:
        length = int(known[0]) if len(known) else 0
        if good is None or (lengths == length).all():
            return contents.reshape(len(column), length, *contents.shape[1:])
    rows: list[Array | None] = []
    for row, (start, end) in enumerate(itertools.pairwise(ends.tolist())):
        if row in reasons:
            rows.append(None)
        elif isinstance(contents, np.ndarray):
            rows.append(contents[start:end])
        else:
            parts = contents[start:end]
            if len({part.shape for part in parts if part is not None}) > 1:
                reasons[row] = "its lists differ in length"
                rows.append(None)
            else:
                rows.append(np.stack([part for part in parts if part is not None]))
    return rows


def _is_list(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind))


def is_list(kind: pa.DataType) -> bool:
    """Whether a column holds tensors."""
    return _is_list(kind) or isinstance(kind, pa.BaseExtensionType)
