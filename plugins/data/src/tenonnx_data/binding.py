"""Binding of table columns to model inputs."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from tenonnx import Graph, InvalidCall, InvalidFeed, TensorType, Value
from tenonnx.extend import DType

Array = np.ndarray[Any, Any]


class Field(NamedTuple):
    """A column of a source: its kind of elements, nesting depth of lists, and its type for messages.

    ``kind`` is "number", "text", "binary", "parsed" for text of a file that is parsed to the type of the input,
    "tensor", or empty for unsupported types. Columns defined by ``folder`` names are read only on request.
    """

    name: str
    kind: str
    type: str
    lists: int = 0
    folder: bool = False


class Bound(NamedTuple):
    """An input, its columns, and its dims after the first: ints, None if dynamic."""

    name: str
    dtype: DType
    columns: tuple[str, ...]
    dims: tuple[int | None, ...]
    #: Whether the columns are concatenated along the second axis.
    is_concatenated: bool


class Binding(NamedTuple):
    """Sources of the feeds. ``rows`` is the fixed batch size of the model, None if it is dynamic."""

    inputs: tuple[Bound, ...]
    keep: tuple[str, ...]
    rows: int | None

    @property
    def columns_to_read(self) -> list[str]:
        """The columns to read, without duplicates."""
        return list(dict.fromkeys([*(c for bound in self.inputs for c in bound.columns), *self.keep]))


def bind(
    graph: Graph,
    fields: Sequence[Field],
    columns: Mapping[str, Sequence[str]],
    keep: Collection[str],
    source: str = "the input",
    noun: str = "column",
) -> Binding:
    """Find the columns of every input among the ``fields`` of a source; messages call these ``source`` and ``noun``.

    Raises ``InvalidCall`` naming missing columns and those of unsuitable types.
    """
    names = [field.name for field in fields]
    _check_names(graph, names, columns, keep, f"{source} has no {noun}")
    found = []
    feedable = [value for value in graph.all_inputs if value.data is None or value.name in (*columns, *names)]
    for value in feedable:
        if not isinstance(value.type, TensorType):
            raise InvalidCall(f'input "{value.name}" is {value.type}, which no column of a table can hold')
        if value.type.shape == ():
            raise InvalidCall(
                f'input "{value.name}" has no entry for each row',
                given="a scalar",
                do="make it an initializer, or an input of shape [rows]",
            )
        found.append(_bound(value, value.type, feedable, fields, columns, keep, f"{source} has no {noun}"))
    if not found:
        raise InvalidCall("the model has no input to feed", given="none")
    sizes = {value.name: value.tensor.shape[0] for value in feedable if value.tensor.shape}
    numbers = {size for size in sizes.values() if isinstance(size, int)}
    if len(numbers) > 1:
        raise InvalidCall(
            "the batch sizes of inputs differ",
            given=", ".join(f"{name}: {size}" for name, size in sizes.items()),
        )
    return Binding(tuple(found), tuple(keep), numbers.pop() if numbers else None)


def _check_names(
    graph: Graph, names: Sequence[str], columns: Mapping[str, Sequence[str]], keep: Collection[str], absent: str
) -> None:
    inputs = [value.name for value in graph.all_inputs]
    if unknown := [name for name in columns if name not in inputs]:
        raise InvalidCall(
            "columns were assigned to unknown inputs", given=", ".join(unknown), available=", ".join(inputs)
        )
    wanted = [*keep, *(name for given in columns.values() for name in given)]
    if missing := [name for name in wanted if name not in names]:
        raise InvalidCall(f'{absent} "{missing[0]}"', given=", ".join(names), do="correct the name")
    for name in wanted:
        _check_once(names, name)


def _check_once(names: Sequence[str], name: str) -> None:
    if names.count(name) > 1:
        raise InvalidCall(f'several columns are called "{name}"', given=", ".join(names), do="rename the others")


def _bound(
    value: Value,
    kind: TensorType,
    feedable: Sequence[Value],
    fields: Sequence[Field],
    columns: Mapping[str, Sequence[str]],
    keep: Collection[str],
    absent: str,
) -> Bound:
    field_names = [field.name for field in fields]
    dims = (None,) if kind.shape is None else kind.shape[1:]
    open_dims = tuple(dim if isinstance(dim, int) else None for dim in dims)
    if value.name in columns:
        names = tuple(columns[value.name])
        together = len(names) > 1
    elif value.name in field_names:
        names, together = (value.name,), False
    else:
        left = [field for field in fields if field.name not in keep and not field.folder]
        names = tuple(field.name for field in left)
        files = tuple(field.name for field in left if field.kind == "binary" and not field.lists)
        if len(files) == 1 and kind.dtype is not DType.string:
            names = files
        one = len(names) == 1
        fits = len(feedable) == 1 and (one or (len(open_dims) == 1 and open_dims[0] in (None, len(names))))
        together = not one
        if not fits:
            raise InvalidCall(
                f'{absent} "{value.name}"' + (f", or {_count(open_dims)} that make it" if len(feedable) == 1 else ""),
                given=", ".join(names),
                available=", ".join(f"{each.name}: {each.type}" for each in feedable),
                do=f"say which columns make it (--columns {value.name}=A,B)",
            )
    if together and (len(open_dims) != 1 or open_dims[0] not in (None, len(names))):
        raise InvalidCall(
            f'input "{value.name}" is not made of {_count(open_dims)}',
            given=f"{len(names)}: {', '.join(names)}",
            available=f"{value.name}: {kind}",
        )
    for name in names:
        _check_once(field_names, name)
        _check_type(fields[field_names.index(name)], value.name, kind, len(open_dims) - together)
    return Bound(value.name, kind.dtype, names, open_dims, together)


def _count(dims: tuple[int | None, ...]) -> str:
    if len(dims) != 1:
        return "one column of lists"
    return "columns" if dims[0] is None else f"{dims[0]} columns"


def _check_type(field: Field, of: str, kind: TensorType, depth: int) -> None:
    """Raise ``InvalidFeed`` if no row of a column could be fed."""
    fitting = {"text", "binary"} if kind.dtype is DType.string else {"number"}
    if field.kind == "binary" and not field.lists and depth:
        fitting.add("binary")  # the contents of an image or array file
    if field.kind not in (*fitting, "parsed", "tensor", "missing"):
        raise InvalidFeed(
            f'column "{field.name}" does not fit the input "{of}"',
            given=field.type,
            available=f"{of}: {kind}",
            do="cast the column, or name another (--columns)",
        )


def in_dims(array: Array, bound: Bound) -> Array:
    """Reshape rows to the dims of the input: single values to vectors of one, flat lists to static dims."""
    if array.ndim == 1 and bound.dims and all(dim in (None, 1) for dim in bound.dims):
        return array.reshape(-1, *[1] * len(bound.dims))
    sizes = [dim for dim in bound.dims if dim is not None]
    is_flat = array.ndim == 2 and len(sizes) == len(bound.dims) > 1
    return array.reshape(-1, *sizes) if is_flat and math.prod(sizes) == array.shape[1] else array
