"""Reading the models that users pass as graphs, and printing and writing them as the tools do."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

import tenonnx as tx
from tenonnx_convert.input_dims import set_dims
from tenonnx_convert.options import ConvertConfig

if TYPE_CHECKING:
    import onnx

#: The largest message that protocol buffers hold.
_LARGEST_MESSAGE = (1 << 31) - (1 << 20)

#: Bytes of the smallest weights that ``onnx.save`` writes beside a message.
SMALLEST_BESIDE = 1024


def graph_of(model: Any) -> tx.Graph:
    """The graph of a message or of a path."""
    return model if isinstance(model, tx.Graph) else tx.load(model)


def with_shapes(graph: tx.Graph, shapes: Mapping[str, Sequence[int | str | None]]) -> tx.Graph:
    """A copy of ``graph`` whose inputs have these dims, also where numbers replace others."""
    return set_dims(graph, ConvertConfig(fix_shapes=dict(shapes))) if shapes else graph.copy()


def message_of(graph: tx.Graph, shapes: str | None = "all", **options: Any) -> onnx.ModelProto:
    """The message of a graph, with the types of all values; ``options`` are those of ``tx.export``."""
    return graph.to_proto(shapes=shapes, **options)


def save(
    model: onnx.ModelProto,
    path: str | os.PathLike[str],
    threshold: int = _LARGEST_MESSAGE,
    smallest: int = SMALLEST_BESIDE,
) -> None:
    """Write a message; where it has more than ``threshold`` bytes, weights from ``smallest`` bytes on in a file
    beside it."""
    if model.ByteSize() > min(threshold, _LARGEST_MESSAGE):
        tx.export(tx.load(model), path, external_data_threshold=smallest, overwrite=True)
    else:
        Path(path).write_bytes(model.SerializeToString())


def same_outputs(
    original: tx.Graph,
    changed: tx.Graph,
    *,
    runs: int,
    feeds: Mapping[str, Any] | None = None,
    input_shapes: Mapping[str, Sequence[int | str | None]] | None = None,
    rtol: float | None = None,
    atol: float | None = None,
) -> bool:
    """Whether two graphs compute the same for ``feeds``, or for so many random inputs; outputs that are gone apart."""
    if not runs:
        return True
    names = [value.name for value in changed.outputs]
    if len(names) < len(original.outputs):
        original = original.extract([value.name for value in original.inputs], names)
    known = {value.name: value for value in original.inputs}
    shapes = {name: dims for name, dims in (input_shapes or {}).items() if name in known}
    return all(
        tx.verify(
            original, changed, feeds=feeds, input_shapes=shapes, seed=seed, rtol=rtol, atol=atol, structure=False
        ).equal
        for seed in range(1 if feeds else runs)
    )


#: Contents of generated inputs, by the names that tools have for them.
FILLS: Mapping[str, Callable[[list[int]], Any]] = {
    "ones": np.ones,
    "zeros": np.zeros,
    "arange": lambda size: np.arange(math.prod(size)).reshape(size),
}


def filled(
    graph: tx.Graph, fill: str, shapes: Mapping[str, Sequence[int | str | None]] | None = None
) -> dict[str, Any] | None:
    """Inputs of one of ``FILLS``, with these dims, and 1 for open ones; None for ``random``."""
    if fill == "random":
        return None
    if fill not in FILLS:
        raise ValueError(f"unknown input_fill: {fill!r}; there are random, {', '.join(FILLS)}")
    found = {}
    for value in graph.inputs:
        dims = (shapes or {}).get(value.name, value.shape)
        size = [dim if isinstance(dim, int) else 1 for dim in dims]
        found[value.name] = FILLS[fill](size).astype(value.dtype.numpy)
    return found


def shapes_of(given: Sequence[str] | Mapping[str, Sequence[int]] | None) -> dict[str, list[int | str | None]]:
    """Dims by name, from ``x:1,3,224,224`` or from a mapping."""
    if isinstance(given, Mapping):
        return {name: list(dims) for name, dims in given.items()}
    found: dict[str, list[int | str | None]] = {}
    for text in given or ():
        name, _, dims = text.rpartition(":")
        found[name] = [int(dim) if dim.lstrip("-").isdigit() else dim for dim in dims.split(",")]
    return found


def check_inputs(given: Sequence[str] | None) -> tuple[dict[str, list[int | str | None]], dict[str, Any] | None]:
    """Shapes and arrays from ``x:1,3,224,224`` and ``x:data.npy``."""
    files = [text.rpartition(":") for text in given or () if text.endswith(".npy")]
    shapes = shapes_of([text for text in given or () if not text.endswith(".npy")])
    return shapes, {name: np.load(path) for name, _, path in files} or None


def counts(graph: tx.Graph) -> dict[str, int]:
    """Number of nodes of each op type, with those of subgraphs."""
    found: dict[str, int] = {}
    for node in graph.walk():
        found[node.op_type] = found.get(node.op_type, 0) + 1
    return found


def print_table(graphs: Mapping[str, tx.Graph]) -> None:
    """Print the op types of several graphs side by side, with the bytes of their weights."""
    found = [counts(graph) for graph in graphs.values()]
    rows = [[name, *(str(each.get(name, 0)) for each in found)] for name in sorted(set().union(*found))]
    rows.append(["nodes", *(str(sum(each.values())) for each in found)])
    rows.append(["bytes of weights", *(f"{_weights(graph):,}" for graph in graphs.values())])
    print_rows([["", *graphs], *rows])


def print_rows(rows: Sequence[Sequence[str]]) -> None:
    """Print a table whose rows may end early."""
    columns = max(map(len, rows))
    rows = [[*row, *[""] * (columns - len(row))] for row in rows]
    widths = [max(len(row[column]) for row in rows) for column in range(columns)]
    for row in rows:
        print("  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip())


def _weights(graph: tx.Graph) -> int:
    from tenonnx.tools import weight_bytes

    return weight_bytes(graph)
