"""Adaptation of an estimator's graph to the inputs and outputs that a user of skl2onnx declares."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

import tenonnx as tx
import tenonnx_standard as ops
from tenonnx.extend import DType, InvalidCall, TensorType, inline
from tenonnx_compat.models import graph_of, message_of
from tenonnx_compat.refusal import NotSupported
from tenonnx_compat.skl2onnx.common import data_types

if TYPE_CHECKING:
    import onnx


Form = Callable[[tx.Value], tx.Value]


@dataclass(frozen=True)
class Output:
    """An output: the estimator's method, the output's name, and a function ``form`` that adapts the result.

    ``column`` makes a vector a one-column matrix; ``sequence`` collects the results of several targets in a sequence.
    """

    method: str
    name: str
    column: bool = False
    sequence: bool = False
    form: Form = ops.identity


def methods(outputs: Sequence[Output]) -> list[str]:
    """The distinct methods of the outputs; the one with a sequence comes last."""
    return list(dict.fromkeys(each.method for each in sorted(outputs, key=lambda each: each.sequence)))


def with_interface(
    graph: tx.Graph,
    types: Sequence[tuple[str, data_types.TensorType]],
    outputs: Sequence[Output],
    finals: Sequence[tuple[str, data_types.DataType | None]] | None,
) -> tx.Graph:
    """``graph`` with inputs of these names and types, whose concatenated columns feed its own inputs.

    ``finals`` renames outputs and casts them to other types. Raises ``InvalidCall`` if the numbers of columns differ,
    ``NotSupported`` if ``finals`` does not have one entry per output.
    """
    outer = tx.Graph(opsets=dict(graph.opsets), name=graph.name)
    outer.registry = graph.registry
    _check_finals(finals, outputs)
    with outer.building():
        inputs = [outer.input(name, DType(kind.element), _dims(kind)) for name, kind in types]
        results = _gathered(inline(graph, _fed(graph, inputs)), outputs)
        for place, output in enumerate(outputs):
            value = results[output.method]
            if output.column and isinstance(value.type, TensorType) and value.rank == 1:
                value = ops.unsqueeze(value, np.array([1], np.int64))
            value = output.form(value)
            name, kind = finals[place] if finals else (output.name, None)
            if isinstance(kind, data_types.TensorType):
                value = ops.cast(value, to=DType(kind.element))
            outer.output(name, value)
    return tx.simplify(outer, join=False)


def renamed(model: onnx.ModelProto, naming: str | Callable[..., str]) -> onnx.ModelProto:
    """Rename computed values and initializers, with a prefix or a function of the name and the names so far."""
    graph = graph_of(model)
    interface = {value.name for value in (*graph.inputs, *graph.outputs)}
    used = set(interface)
    for value in list(graph.values()):
        if value.name not in interface:
            name = naming(value.name, used) if callable(naming) else naming + value.name
            graph.rename(value, name)
            used.add(name)
    return message_of(graph, shapes=None)


def _check_finals(finals: Sequence[tuple[str, data_types.DataType | None]] | None, outputs: Sequence[Output]) -> None:
    names = [name for name, _ in finals or ()]
    if names and (len(names) != len(outputs) or len(set(names)) != len(names)):
        raise NotSupported(
            "final_types do not name every output once",
            given=", ".join(names),
            available=", ".join(each.name for each in outputs),
        )


def _gathered(results: Sequence[tx.Value | None], outputs: Sequence[Output]) -> dict[str, tx.Value]:
    """The results by method; a sequence has a matrix of probabilities per target."""
    values = [value for value in results if value is not None]
    names = methods(outputs)
    if not any(each.sequence for each in outputs):
        return dict(zip(names, values, strict=True))
    parts = values[len(names) - 1 :]
    if len(parts) == 1 and parts[0].rank == 3:
        targets = parts[0].shape[1]
        assert isinstance(targets, int)
        axis = np.array([1], np.int64)
        parts = [ops.squeeze(part, axis) for part in ops.split(parts[0], np.ones(targets, np.int64), axis=1)]
    return dict(zip(names, [*values[: len(names) - 1], ops.sequence_construct(*parts)], strict=True))


def _dims(kind: data_types.TensorType) -> tuple[int | str | None, ...]:
    dims = [dim or None for dim in kind.shape or (None, 1)]
    return tuple(dims)


def _fed(graph: tx.Graph, declared: Sequence[tx.Value]) -> list[tx.Value]:
    """The inputs of ``graph``, from the declared ones: by name or position, or column by column."""
    inputs = graph.inputs
    by_name = {value.name: value for value in declared}
    if len(inputs) == len(declared):
        ordered = [by_name.get(value.name, declared[place]) for place, value in enumerate(inputs)]
        return [_as(value, like) for value, like in zip(ordered, inputs, strict=True)]
    if len(inputs) == 1:
        return [ops.concat(*(_as(value, inputs[0]) for value in declared), axis=1)]
    columns = [column for value in declared for column in _columns(value)]
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
    """Cast ``value`` to the type of ``like``, and flatten a column if ``like`` is a vector."""
    if value.rank == 2 and like.rank == 1:
        value = ops.reshape(value, np.array([-1], np.int64))  # accepts a vector, too, as skl2onnx does
    if value.rank == 1 and like.rank == 2:
        value = ops.unsqueeze(value, np.array([1], np.int64))
    return value if value.dtype is like.dtype else ops.cast(value, to=like.dtype)
