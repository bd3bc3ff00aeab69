"""Feeds of a model in batches, from a path, arrays, or data loaders and datasets of other libraries."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from tenonnx.extend import Graph, InvalidFeed
from tenonnx_data.loaders import Samples, as_array, as_data, is_tensor
from tenonnx_data.reading import read_table

#: Arrays by name, a tuple of arrays, a path, an iterable of batches, or a dataset.
Data = Any


def batches_of(
    graph: Graph, data: Data, *, columns: Mapping[str, Sequence[str]] | None = None, batch_size: int = 32
) -> Iterator[dict[str, Any]]:
    """Batches of the inputs of ``graph``; labels and other columns are dropped.

    ``data`` is the path of a table, whose ``columns`` for each input may be given, or data as for training: arrays by
    name, a tuple of them, an iterable of batches in either form, a dataset that is indexed by sample, or a function
    that returns an iterable. Raises ``InvalidCall`` for a path that cannot be read, ``InvalidFeed`` for other data.
    """
    inputs = [value.name for value in graph.inputs]
    if isinstance(data, str | os.PathLike):
        data = read_table(os.fspath(data)).feeds(graph, columns or {}, ())
    if isinstance(data, tuple) and data and all(map(is_tensor, data)):
        data = dict(zip(inputs, data, strict=False))
    if not isinstance(data, Mapping):
        data = as_data(data, inputs, None, batch_size=batch_size, shuffle=False, seed=0)
    if isinstance(data, Mapping):
        yield from cut(graph, _inputs(graph, inputs, data), batch_size)
    elif isinstance(data, Iterable):
        yield from (_inputs(graph, inputs, batch) for batch in data)
    else:
        raise InvalidFeed("data is neither arrays, a path nor an iterable of batches", given=type(data).__name__)


def cut(graph: Graph, feeds: Mapping[str, Any], size: int) -> Iterator[dict[str, Any]]:
    """Feeds split into ``size`` rows if the first dim of every input is dynamic; else unsplit."""
    if not feeds:
        return
    shapes = [value.tensor.shape for value in graph.inputs if value.name in feeds]
    free = all(shape and not isinstance(shape[0], int) for shape in shapes)
    rows = {contents.shape[0] for contents in feeds.values() if getattr(contents, "ndim", 0)}
    if not free or len(rows) != 1:
        yield dict(feeds)
        return
    count = rows.pop()
    for start in range(0, count, size):
        chosen: Any = slice(start, start + size)
        part = np.arange(start, min(start + size, count))
        yield {name: each[part if isinstance(each, Samples) else chosen] for name, each in feeds.items()}


def _inputs(graph: Graph, inputs: Sequence[str], batch: Any) -> dict[str, Any]:
    """The inputs of a batch by name; in a tuple they come first, or are nested as a tuple or mapping."""
    if isinstance(batch, tuple | list) and batch:
        first = batch[0]
        nested = isinstance(first, Mapping | tuple | list)
        batch = first if nested else batch
        if not isinstance(batch, Mapping):
            batch = dict(zip(inputs, batch, strict=False))
    elif is_tensor(batch) and len(inputs) == 1:
        batch = {inputs[0]: batch}
    names = {value.name for value in graph.all_inputs}
    feeds = {name: each for name, each in batch.items() if name in names} if isinstance(batch, Mapping) else {}
    if missing := [name for name in inputs if name not in feeds]:
        raise InvalidFeed(
            "a batch lacks inputs of the model",
            given=", ".join(map(str, batch)) if isinstance(batch, Mapping) else type(batch).__name__,
            available=", ".join(inputs),
            do=f"give {', '.join(missing)}, too: as a mapping of names to arrays, or a tuple in this order",
        )
    return {name: as_array(each) if is_tensor(each) else each for name, each in feeds.items()}
