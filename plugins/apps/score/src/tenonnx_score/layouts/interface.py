"""Inputs and outputs of a model in the terms of servers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from tenonnx import Graph, NotRepresentable, TensorType, Value


class Tensor(NamedTuple):
    """An input or output: name, element type and dims, None if dynamic."""

    name: str
    dtype: str
    dims: tuple[int | None, ...]


class Interface(NamedTuple):
    """All required inputs, and all outputs."""

    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]

    @property
    def batched(self) -> bool:
        """Whether the first axis of all is dynamic, so that a server may batch requests."""
        return all(each.dims and each.dims[0] is None for each in (*self.inputs, *self.outputs))


def interface_of(graph: Graph) -> Interface:
    """The interface of a graph. Raises ``NotRepresentable`` for anything but a tensor of known rank."""
    return Interface(_tensors("input", graph.inputs), _tensors("output", graph.outputs))


def _tensors(what: str, values: Sequence[Value]) -> tuple[Tensor, ...]:
    found = []
    for value in values:
        kind = value.type
        if not isinstance(kind, TensorType) or kind.shape is None:
            raise NotRepresentable(
                f'{what} "{value.name}" is not a tensor of known rank',
                given=str(kind),
                do="cut the model before it (tenonnx extract), or fix its shape (--fix-shapes)",
            )
        dims = tuple(dim if isinstance(dim, int) else None for dim in kind.shape)
        found.append(Tensor(value.name, kind.dtype.name, dims))
    return tuple(found)
