"""Outputs of a model as Arrow columns: vectors as fixed-size lists, maps as structs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from tenonnx import Graph, InvalidCall, InvalidModel, TensorType
from tenonnx_data.binding import Binding
from tenonnx_data.columns import number_column
from tenonnx_score.model import Asked

Array = np.ndarray[Any, Any]


def fields_of(graph: Graph, requested: Sequence[Asked], binding: Binding, outputs: Mapping[str, Any]) -> list[pa.Field]:
    """The column of each output, by its type and by the first computed value.

    A dynamic axis becomes a fixed-size list, unless inputs have dynamic axes after the first, too.
    """
    types = {value.name: value.type for value in graph.outputs}
    is_open = any(dim is None for bound in binding.inputs for dim in bound.dims)
    result = []
    for each in requested:
        contents, kind = outputs[each.computed], types[each.computed]
        if each.keys is not None:
            value = _element(each.name, contents.dtype)
            column = pa.struct([pa.field(str(key), value) for key in each.keys])
        elif isinstance(contents, list):
            column = _struct(each.name, contents)
        else:
            dims = kind.shape[1:] if isinstance(kind, TensorType) and kind.shape is not None else ()
            known = [isinstance(dim, int) for dim in dims] or [False] * (contents.ndim - 1)
            column = _element(each.name, contents.dtype)
            sizes = contents.shape[1:]
            if sizes == (1,) and (known[0] or not is_open):
                sizes = ()
            for size, is_static in reversed(list(zip(sizes, known, strict=False))):
                column = pa.list_(column, size if is_static or not is_open else -1)
        result.append(pa.field(each.name, column))
    return result


def _struct(name: str, contents: Sequence[Any]) -> pa.DataType:
    first = contents[0] if contents else None
    if not isinstance(first, dict):
        raise InvalidCall(f'output "{name}" has no tensor or map for each row', given=f"{contents!r:.80}")
    values = [np.asarray(value) for value in first.values()]
    return pa.struct(
        [pa.field(str(key), _element(name, value.dtype)) for key, value in zip(first, values, strict=True)]
    )


def _element(name: str, dtype: Any) -> pa.DataType:
    """The Arrow type that holds all values of an element type."""
    if dtype.kind in "OUST":
        return pa.string()
    if dtype.kind in "biuf" and dtype.itemsize <= 8:
        return pa.from_numpy_dtype(dtype)
    if dtype.kind == "c":
        raise InvalidCall(
            f'output "{name}" is {dtype}, which Arrow has no type for', do="choose others (--output-names A,B)"
        )
    return pa.from_numpy_dtype(_wider(dtype))


def _wider(dtype: Any) -> Any:
    """The numpy dtype that holds all values of a dtype of ``ml_dtypes``."""
    return (
        np.dtype(np.int8)
        if "int" in dtype.name and not dtype.name.startswith("uint")
        else (np.dtype(np.uint8) if dtype.name.startswith("uint") else np.dtype(np.float32))
    )


def check_rows(requested: Sequence[Asked], outputs: Mapping[str, Any], rows: int) -> None:
    """Raise ``InvalidModel`` unless every output has one entry for each row."""
    for each in requested:
        contents = outputs[each.computed]
        count = len(contents) if isinstance(contents, list) or contents.ndim else None
        if count != rows:
            shape = list(contents.shape) if isinstance(contents, np.ndarray) else [count]
            raise InvalidModel(
                f'output "{each.name}" does not have one entry for each row',
                given=f"shape {shape} for {rows} rows",
                do="choose the outputs that have (--output-names A,B)",
            )


def column_of(requested: Asked, field: pa.Field, contents: Any) -> Any:
    """The contents of an output as its column. Raises ``InvalidModel`` if they do not have the column's type."""
    if pa.types.is_struct(field.type):
        names = [inner.name for inner in field.type]
        if requested.keys is not None:
            arrays = [_flat(contents[:, k], inner.type) for k, inner in enumerate(field.type)]
        else:
            for each in contents:
                if [str(key) for key in each] != names:
                    raise _differs(requested.name, f"a map of {', '.join(map(str, each))}", field)
            arrays = [
                _flat(np.asarray([row[key] for row in contents]), inner.type)
                for key, inner in zip(contents[0], field.type, strict=True)
            ]
        return pa.StructArray.from_arrays(arrays, fields=list(field.type))
    return _nested(requested.name, contents, field, field.type, 1)


def _nested(name: str, array: Array, field: pa.Field, kind: pa.DataType, axis: int) -> Any:
    """Nested lists for the axes from ``axis`` on; all rows of one call have equal sizes."""
    if not pa.types.is_list(kind) and not pa.types.is_fixed_size_list(kind):
        if array.size != int(np.prod(array.shape[:axis])):
            raise _differs(name, f"the shape {list(array.shape[1:])}", field)
        return _flat(array.reshape(-1), kind)
    if axis >= array.ndim or (pa.types.is_fixed_size_list(kind) and kind.list_size != array.shape[axis]):
        raise _differs(name, f"the shape {list(array.shape[1:])}", field)
    values = _nested(name, array, field, kind.value_type, axis + 1)
    if pa.types.is_fixed_size_list(kind):
        return pa.FixedSizeListArray.from_arrays(values, type=kind)
    count = int(np.prod(array.shape[:axis]))
    offsets = pa.array(np.arange(count + 1, dtype=np.int64) * array.shape[axis], pa.int32())
    return pa.ListArray.from_arrays(offsets, values, type=kind)


def _flat(array: Array, kind: pa.DataType) -> Any:
    if pa.types.is_string(kind):
        return pa.array([each.decode("utf-8", "replace") if isinstance(each, bytes) else each for each in array], kind)
    if array.dtype.kind not in "biuf" or array.dtype.itemsize > 8:
        array = array.astype(_wider(array.dtype))
    column = number_column(array)
    return column if column.type == kind else column.cast(kind)


def _differs(name: str, given: str, field: pa.Field) -> InvalidModel:
    return InvalidModel(
        f'output "{name}" has several types in its rows',
        given=given,
        available=f"{field.type}, of the first rows",
        do="score such rows apart, or choose other outputs (--output-names A,B)",
    )
