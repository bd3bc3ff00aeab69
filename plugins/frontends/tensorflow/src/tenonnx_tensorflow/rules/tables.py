"""Lookup tables."""

from __future__ import annotations

from typing import Any

import numpy as np

from tenonnx.extend import DType, NotRepresentable, Value, constant
from tenonnx_onnx_ml.encoders import label_encoder
from tenonnx_tensorflow.attributes import dtype_of
from tenonnx_tensorflow.rules import rule
from tenonnx_tensorflow.tracked_values import Table, as_dtype, known


@rule(
    "HashTableV2",
    "HashTable",
    "MutableHashTableV2",
    "MutableHashTable",
    "AnonymousHashTable",
    "AnonymousMutableHashTable",
    "MutableDenseHashTableV2",
    "AnonymousMutableDenseHashTable",
    interpreter=True,
)
def table(interpreter: Any, node: Any, *_: Value) -> Table:
    name = node.get("shared_name", "") or node.get("container", "") or node.name
    result: Table = interpreter.state.tables.setdefault(name, Table(name))
    return result


@rule("LookupTableImportV2", "InitializeTableV2", "InitializeTable", "LookupTableInsertV2", interpreter=True)
def fill(interpreter: Any, node: Any, table: Table, keys: Value, contents: Value) -> list[Any]:
    table.keys = known(keys, "the keys of a table").reshape(-1)
    table.contents = known(contents, "the contents of a table").reshape(-1)
    return []


@rule("InitializeTableFromTextFileV2", interpreter=True)
def fill_from_file(interpreter: Any, node: Any, table: Table, name: Value) -> list[Any]:
    """Read a table from a file; keys and values are columns (0, 1, ...), complete lines (-2) or line numbers (-1)."""
    lines = interpreter.state.asset(str(known(name, "the name of a file of a table").reshape(-1)[0]))
    rows = [line.split(node.get("delimiter", "\t") or "\t") for line in lines]

    def column(place: int) -> list[Any]:
        if place == -1:
            return list(range(len(lines)))
        return list(lines) if place == -2 else [row[place] for row in rows]

    keys, contents = column(int(node["key_index"])), column(int(node["value_index"]))
    table.keys, table.contents = np.asarray(keys, object), np.asarray(contents, object)
    return []


_NAMES = {DType.string: "strings", DType.int64: "int64s", DType.float32: "floats"}


@rule("LookupTableFindV2", "LookupTableFind", interpreter=True)
def find(interpreter: Any, node: Any, table: Any, keys: Value, default: Value) -> Value:
    if not isinstance(table, Table):
        raise NotRepresentable("a lookup is not of a table", given=node.title)
    wanted = dtype_of(node["Tout"])
    if table.keys is None and callable(table.contents):
        table.keys, table.contents = (a.reshape(-1) for a in table.contents(node["Tin"], node["Tout"]))
    if table.keys is None:
        raise NotRepresentable("a table has no contents", given=f'{node.title} reads "{table.name}"')
    fallback = known(default, "what a table gives for other keys").reshape(-1)[0]
    cast_keys = keys if keys.dtype is DType.string else as_dtype(keys, DType.int64)
    kind = wanted if wanted in _NAMES else DType.int64
    named: Any = {
        f"keys_{_NAMES[cast_keys.dtype]}": [_plain(key, cast_keys.dtype) for key in table.keys],
        f"values_{_NAMES[kind]}": [_plain(each, kind) for each in table.contents],
        f"default_{_NAMES[kind][:-1]}": _plain(fallback, kind),
    }
    found = label_encoder(cast_keys, **named)
    return as_dtype(found, wanted)


def _plain(content: Any, dtype: DType) -> Any:
    if dtype is DType.string:
        return content.decode() if isinstance(content, bytes) else str(content)
    return float(content) if dtype is DType.float32 else int(content)


@rule("LookupTableSizeV2", "LookupTableSize", interpreter=True)
def size(interpreter: Any, node: Any, table: Table) -> Value:
    if table.keys is None:
        raise NotRepresentable("the size of a table without contents is unknown", given=node.title)
    return constant(np.asarray(len(table.keys), np.int64))
