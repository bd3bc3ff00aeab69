"""Parts of a model: each becomes one graph, with the names, dims and examples of its inputs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

import tenonnx as tx
from tenonnx.extend import Graph

#: A call of a model: tensors by input name, to the tensors of the outputs in order.
Call = Callable[[Mapping[str, Tensor]], Sequence[Tensor]]


@dataclass(frozen=True)
class Part:
    """One graph to be: a call of ``model`` with ``examples`` by input name, ``outputs`` by name, and dynamic ``dims``.

    ``name`` is that of the file without its suffix.
    """

    name: str
    model: torch.nn.Module
    call: Call
    examples: Mapping[str, Tensor]
    outputs: Sequence[str]
    dims: Mapping[str, Mapping[int, str]]

    def graph(self) -> Graph:
        """The graph of the part. Variables are named as in the ``state_dict`` of the model.

        Raises ``NotRepresentable`` naming lines of the module that cannot be traced or have no form in ONNX.
        """
        names = list(self.examples)
        given: list[Any] = [dict(zip(_keys(names), self.examples.values(), strict=True))]
        kind = type(type(self.model).__name__, (Traced,), {})  # errors name the model
        found = tx.load(
            kind(self),
            *given,
            dims={name: dict(axes) for name, axes in self.dims.items() if axes and name in self.examples},
            input_names=names,
            output_names=list(self.outputs),
            verify=False,
            simplify=None,
        )
        for value in list(found.variables):
            plain = value.name.removeprefix(PREFIX)
            if plain != value.name and plain not in found.names():
                found.rename(value, plain)
        found.name = self.name
        return found


#: Of the variables of a traced part.
PREFIX = "model."


class Traced(torch.nn.Module):
    """A part as a module of one argument, a dict of tensors."""

    def __init__(self, part: Part) -> None:
        super().__init__()
        self.model = part.model
        self._call, self._names = part.call, list(part.examples)

    def forward(self, inputs: dict[str, Tensor]) -> list[Tensor]:
        tensors = [inputs[key] for key in _keys(self._names)]
        return list(self._call(dict(zip(self._names, tensors, strict=True))))


def _keys(names: Sequence[str]) -> list[str]:
    """Keys that sort in the order of the names: trees of PyTorch sort dicts."""
    return [f"input{place:05d}" for place in range(len(names))]
