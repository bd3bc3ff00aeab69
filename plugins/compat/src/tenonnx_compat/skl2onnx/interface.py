"""Inputs and outputs as a user of skl2onnx declares them, around the graph of an estimator."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

import tenonnx as tx
import tenonnx_standard as ops
from tenonnx.extend import DType, InvalidCall, TensorType, inline
from tenonnx_compat.skl2onnx.common import data_types


@dataclass(frozen=True)
class Output:
    """An output: the method of the estimator and its name.

    With ``column`` a vector becomes a matrix of one column; with ``sequence`` several targets become a sequence.
    """

    method: str
    name: str
    column: bool = False
    sequence: bool = False


def with_interface(
    graph: tx.Graph,
    types: Sequence[tuple[str, data_types.TensorType]],
    outputs: Sequence[Output],
    names: Sequence[str] | None,
) -> tx.Graph:
    """``graph`` behind inputs of these names and types, whose columns are its own inputs side by side.

    ``names`` replace those of the outputs. Raises ``InvalidCall`` where numbers of columns or outputs differ.
    """
    made = tx.Graph(opsets=dict(graph.opsets), name=graph.name)
    made.registry = graph.registry
    with made.building():
        given = [made.input(name, DType(kind.element), _dims(kind)) for name, kind in types]
        results = _gathered(inline(graph, _fed(graph, given)), outputs)
        found = names or _named(outputs, len(results))
        if len(found) != len(results):
            raise InvalidCall(
                "final_types do not name every output", given=", ".join(found), available=", ".join(_named(outputs, 9))
            )
        for place, (name, value) in enumerate(zip(found, results, strict=True)):
            assert value is not None
            upright = outputs[place].column and isinstance(value.type, TensorType) and value.rank == 1
            made.output(name, ops.unsqueeze(value, np.array([1], np.int64)) if upright else ops.identity(value))
    return tx.simplify(made, join=False)


def _gathered(results: Sequence[tx.Value | None], outputs: Sequence[Output]) -> list[tx.Value | None]:
    """The results, with those of several targets as one sequence: a matrix of probabilities for each."""
    parts = [value for value in results[len(outputs) - 1 :] if value is not None]
    if not outputs[-1].sequence:
        return list(results)
    if len(parts) == 1 and parts[0].rank == 3:
        targets = parts[0].shape[1]
        assert isinstance(targets, int)
        axis = np.array([1], np.int64)
        parts = [ops.squeeze(part, axis) for part in ops.split(parts[0], np.ones(targets, np.int64), axis=1)]
    return [*results[: len(outputs) - 1], ops.sequence_construct(*parts)]


def _named(outputs: Sequence[Output], count: int) -> list[str]:
    return [each.name for each in outputs[:count]]


def _dims(kind: data_types.TensorType) -> tuple[int | str, ...]:
    dims = [dim or None for dim in kind.shape or (None, 1)]
    return tuple(("batch" if axis == 0 else f"dim_{axis}") if dim is None else dim for axis, dim in enumerate(dims))


def _fed(graph: tx.Graph, given: Sequence[tx.Value]) -> list[tx.Value]:
    """The inputs of ``graph`` from declared ones: by name, or column by column."""
    inputs = graph.inputs
    by_name = {value.name: value for value in given}
    if len(inputs) == len(given):
        ordered = [by_name.get(value.name, given[place]) for place, value in enumerate(inputs)]
        return [_as(value, like) for value, like in zip(ordered, inputs, strict=True)]
    if len(inputs) == 1:
        return [ops.concat(*(_as(value, inputs[0]) for value in given), axis=1)]
    columns = [column for value in given for column in _columns(value)]
    if len(columns) != len(inputs):
        raise InvalidCall(
            "initial_types do not have as many columns as the estimator",
            given=f"{len(columns)} columns",
            available=f"{len(inputs)}: {', '.join(value.name for value in inputs)}"[:300],
        )
    return [_as(column, like) for column, like in zip(columns, inputs, strict=True)]


def _columns(value: tx.Value) -> list[tx.Value]:
    width = value.shape[1] if value.rank == 2 else 1
    if width == 1 or not isinstance(width, int):
        return [value]
    return list(ops.split(value, np.ones(width, np.int64), axis=1))


def _as(value: tx.Value, like: tx.Value) -> tx.Value:
    """``value`` in the type of another, which may be a vector where it is a column."""
    if value.rank == 2 and like.rank == 1:
        value = ops.squeeze(value, np.array([1], np.int64))
    if value.rank == 1 and like.rank == 2:
        value = ops.unsqueeze(value, np.array([1], np.int64))
    return value if value.dtype is like.dtype else ops.cast(value, to=like.dtype)
