"""Which columns of a table make which input of a model."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

import pyarrow as pa

from tenonnx import Graph, InvalidCall, InvalidFeed, TensorType, Value
from tenonnx.extend import DType


class Bound(NamedTuple):
    """An input, the columns that make it, and its dims behind the first: ints, and None where they are open."""

    name: str
    dtype: DType
    columns: tuple[str, ...]
    dims: tuple[int | None, ...]
    #: Whether columns stand side by side along the second axis.
    together: bool


class Binding(NamedTuple):
    """What is fed from where. ``rows`` is the number of rows that the model takes at once, None where it is open."""

    inputs: tuple[Bound, ...]
    keep: tuple[str, ...]
    rows: int | None

    @property
    def read(self) -> list[str]:
        """The columns that are read, each once."""
        return list(dict.fromkeys([*(c for bound in self.inputs for c in bound.columns), *self.keep]))


def bind(graph: Graph, schema: pa.Schema, columns: Mapping[str, Sequence[str]], keep: Collection[str]) -> Binding:
    """Find the columns of every input. Raises ``InvalidCall`` naming what is missing, or does not fit by its type."""
    _check_names(graph, schema, columns, keep)
    found = []
    feedable = [value for value in graph.all_inputs if value.data is None or value.name in (*columns, *schema.names)]
    for value in feedable:
        if not isinstance(value.type, TensorType):
            raise InvalidCall(f'input "{value.name}" is {value.type}, which a table has no column for')
        if value.type.shape == ():
            raise InvalidCall(
                f'input "{value.name}" must have one entry for each row', given="a scalar",
                do="make it an initializer, or an input of shape [rows]",
            )  # fmt: skip
        found.append(_bound(value, value.type, feedable, schema, columns, keep))
    if not found:
        raise InvalidCall("a model that is scored must have an input", given="none")
    sizes = {value.name: value.tensor.shape[0] for value in feedable if value.tensor.shape}
    numbers = {size for size in sizes.values() if isinstance(size, int)}
    if len(numbers) > 1:
        raise InvalidCall(
            "all inputs must take the same number of rows at once",
            given=", ".join(f"{name}: {size}" for name, size in sizes.items()),
        )
    return Binding(tuple(found), tuple(keep), numbers.pop() if numbers else None)


def _check_names(graph: Graph, schema: pa.Schema, columns: Mapping[str, Sequence[str]], keep: Collection[str]) -> None:
    inputs = [value.name for value in graph.all_inputs]
    if unknown := [name for name in columns if name not in inputs]:
        raise InvalidCall("columns are given to inputs", given=", ".join(unknown), available=", ".join(inputs))
    wanted = [*keep, *(name for names in columns.values() for name in names)]
    if missing := [name for name in wanted if name not in schema.names]:
        raise InvalidCall(
            f'the input must have a column "{missing[0]}"', given=", ".join(schema.names), do="correct the name"
        )
    for name in wanted:
        _check_once(schema, name)


def _check_once(schema: pa.Schema, name: str) -> None:
    if schema.names.count(name) > 1:
        raise InvalidCall(f'there must be one column "{name}"', given=", ".join(schema.names), do="rename the others")


def _bound(
    value: Value,
    kind: TensorType,
    feedable: Sequence[Value],
    schema: pa.Schema,
    columns: Mapping[str, Sequence[str]],
    keep: Collection[str],
) -> Bound:
    dims = (None,) if kind.shape is None else kind.shape[1:]
    open_dims = tuple(dim if isinstance(dim, int) else None for dim in dims)
    if value.name in columns:
        names = tuple(columns[value.name])
        together = len(names) > 1
    elif value.name in schema.names:
        names, together = (value.name,), False
    else:
        names = tuple(field.name for field in schema if field.name not in keep and not is_folder(field))
        files = tuple(name for name in names if pa.types.is_binary(schema.field(name).type))
        if len(files) == 1 and kind.dtype is not DType.string:
            names = files
        one = len(names) == 1
        fits = len(feedable) == 1 and (one or (len(open_dims) == 1 and open_dims[0] in (None, len(names))))
        together = not one
        if not fits:
            raise InvalidCall(
                f'the input must have a column "{value.name}"'
                + (f", or {_count(open_dims)} that make it" if len(feedable) == 1 else ""),
                given=", ".join(names),
                available=", ".join(f"{each.name}: {each.type}" for each in feedable),
                do=f"say which columns make it (--columns {value.name}=A,B), and which are kept (--keep C)",
            )
    if together and (len(open_dims) != 1 or open_dims[0] not in (None, len(names))):
        raise InvalidCall(
            f'input "{value.name}" must be made of {_count(open_dims)}',
            given=f"{len(names)}: {', '.join(names)}",
            available=f"{value.name}: {kind}",
        )
    for name in names:
        _check_once(schema, name)
        _check_type(name, schema.field(name), value.name, kind, len(open_dims) - together)
    return Bound(value.name, kind.dtype, names, open_dims, together)


def _count(dims: tuple[int | None, ...]) -> str:
    if len(dims) != 1:
        return "one column of lists"
    return "columns" if dims[0] is None else f"{dims[0]} columns"


#: Metadata of a column that holds text of a file, and the type that it is read as where it is kept.
TEXT = b"tenonnx.text"


#: Metadata of a column that the folders of files tell, which is read where it is named.
FOLDER = b"tenonnx.folder"


def is_text(field: pa.Field) -> bool:
    return TEXT in (field.metadata or {})


def is_folder(field: pa.Field) -> bool:
    return FOLDER in (field.metadata or {})


def _check_type(name: str, field: pa.Field, of: str, kind: TensorType, depth: int) -> None:
    """Raise ``InvalidFeed`` where no row of a column could be fed."""
    if is_text(field):
        return
    found, lists = field.type, 0
    if isinstance(found, pa.BaseExtensionType):
        return
    while pa.types.is_list(found) or pa.types.is_large_list(found) or pa.types.is_fixed_size_list(found):
        found, lists = found.value_type, lists + 1
    if pa.types.is_dictionary(found):
        found = found.value_type
    text = pa.types.is_string(found) or pa.types.is_large_string(found) or pa.types.is_string_view(found)
    binary = pa.types.is_binary(found) or pa.types.is_large_binary(found)
    number = (
        pa.types.is_integer(found) or pa.types.is_floating(found)
        or pa.types.is_boolean(found) or pa.types.is_decimal(found) or pa.types.is_null(found)
    )  # fmt: skip
    if binary and (lists or not depth) and kind.dtype is not DType.string:
        binary = False
    fits = binary or (text or pa.types.is_null(found) if kind.dtype is DType.string else number)
    if not fits:
        raise InvalidFeed(
            f'column "{name}" must fit the input "{of}"',
            given=str(field.type),
            available=f"{of}: {kind}",
            do="cast the column, or name another (--columns)",
        )
