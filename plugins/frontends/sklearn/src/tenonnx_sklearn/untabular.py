"""Inputs other than tables: labels, sets of labels, mappings and images."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from tenonnx.extend import DType, Graph, InvalidCall, Value
from tenonnx_sklearn.tables import Table

Array = np.ndarray[Any, Any]

#: Padding of shorter rows of integers, which is never a label.
NO_INTEGER = np.iinfo(np.int64).min


def rows_of(model: Any) -> str:
    """The kind of rows of an estimator: ``labels``, ``sets``, ``mappings``, ``images``, or else ``table``."""
    name = type(model).__name__
    if name == "FeatureHasher":
        return "sets" if model.input_type == "string" else "mappings"
    return _KINDS.get(name, "table")


_KINDS = {
    "DictVectorizer": "mappings",
    "LabelBinarizer": "labels",
    "LabelEncoder": "labels",
    "MultiLabelBinarizer": "sets",
    "PatchExtractor": "images",
}


def add_inputs(graph: Graph, model: Any, example: Any, numbers: DType) -> Table:
    """Add the inputs of a graph whose rows are not a table."""
    kind = rows_of(model)
    if kind == "images":
        return Table((graph.input("X", numbers, ("batch", *_image_sizes(model, example))),), numbers)
    if kind == "mappings":
        names = graph.input("X", DType.string, ("batch", "items"))
        return Table((names, graph.input("values", numbers, ("batch", "items"))), numbers)
    dtype = _dtype_of(getattr(model, "classes_", ["text"]), numbers)
    return Table((graph.input("X", dtype, ("batch",) if kind == "labels" else ("batch", "items")),), numbers)


def _image_sizes(model: Any, example: Any) -> tuple[int, ...]:
    sizes = np.shape(example)[1:]
    if len(sizes) not in (2, 3):
        raise InvalidCall(
            "the sizes of the images are unknown",
            given="no example" if example is None else f"an example of shape {np.shape(example)}",
            do="give tx.load an example of the images, [images, height, width] or [images, height, width, channels]",
        )
    return tuple(int(size) for size in sizes)


def _dtype_of(labels: Any, numbers: DType) -> DType:
    known = np.asarray(labels)
    if known.dtype.kind in "USO":
        whole = all(isinstance(each, int) for each in known.tolist())
        return DType.int64 if whole else DType.string
    return DType.bool if known.dtype.kind == "b" else DType.int64 if known.dtype.kind in "iu" else numbers


def feeds_of(inputs: list[Value], rows: Any) -> dict[str, Array] | None:
    """Feeds of a graph with such inputs, or None for a graph with a table as input."""
    first = inputs[0]
    if len(inputs) == 2 and inputs[1].name == "values" and not isinstance(inputs[1].shape[1], int):
        return _items(inputs, rows)
    if first.rank == 1 and first.dtype is not DType.string:
        return {first.name: np.asarray(rows).astype(first.dtype.numpy).reshape(-1)}
    if first.rank == 2 and not isinstance(first.shape[1], int):
        filling = "" if first.dtype is DType.string else NO_INTEGER
        return {first.name: _filled(rows, filling, first.dtype.numpy)}
    return {first.name: np.asarray(rows, first.dtype.numpy)} if first.rank in (3, 4) else None


def _filled(rows: Any, filling: Any, dtype: Any) -> Array:
    """Pad rows of different lengths to a matrix with at least one column."""
    filled = [list(row) for row in rows]
    result = np.full((len(filled), max([1, *map(len, filled)])), filling, dtype)
    for place, row in zip(result, filled, strict=True):
        place[: len(row)] = row
    return result


def _items(inputs: list[Value], rows: Any) -> dict[str, Array]:
    """Names and numbers of mappings or pairs; a string value becomes the name ``"name=text"`` with value 1."""
    names, numbers = [], []
    for row in rows:
        pairs = [_item(name, value) for name, value in (row.items() if isinstance(row, Mapping) else row)]
        names.append([name for name, _ in pairs])
        numbers.append([number for _, number in pairs])
    found = _filled(names, "", object), _filled(numbers, 0, inputs[1].dtype.numpy)
    return {value.name: array for value, array in zip(inputs, found, strict=True)}


def _item(name: Any, value: Any) -> tuple[str, float]:
    return (f"{name}={value}", 1.0) if isinstance(value, str) else (str(name), float(value))


def made_up_rows(model: Any, number: int, generator: Any) -> Any:
    """Random rows of these kinds."""
    kind, classes = rows_of(model), getattr(model, "classes_", ["a", "b", "some", "word"])
    if kind == "labels":
        return np.asarray(classes)[generator.integers(0, len(classes), number)]
    sizes = generator.integers(0, 5, number)
    if kind == "sets":
        return [[classes[k] for k in generator.integers(0, len(classes), size)] for size in sizes]
    names = [*getattr(model, "vocabulary_", classes)][:1000]
    drawn = [generator.choice(len(names), min(size, len(names)), replace=False) for size in sizes]
    result = [{names[k]: float(generator.integers(-3, 4)) for k in places} for places in drawn]
    return result if getattr(model, "input_type", "dict") == "dict" else [list(each.items()) for each in result]
