"""Parts of a model, each exported as one graph, with names, dynamic dims and examples of its inputs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

import tenonnx as tx
from tenonnx.extend import Graph

#: A call of a model: takes tensors by input name, returns the outputs in order.
Call = Callable[[Mapping[str, Tensor]], Sequence[Tensor]]


@dataclass(frozen=True)
class Part:
    """A part to be exported: ``call`` runs ``model``; ``examples`` and dynamic ``dims`` are given by input name.

    ``outputs`` are the names of the outputs, ``name`` is the file name without suffix.
    """

    name: str
    model: torch.nn.Module
    call: Call
    examples: Mapping[str, Tensor]
    outputs: Sequence[str]
    dims: Mapping[str, Mapping[int, str]]

    def graph(self) -> Graph:
        """Trace the part into a graph. Initializers have the names of the model's ``state_dict``.

        Raises ``NotRepresentable``, with the lines of the module, for code that cannot be traced or expressed in ONNX.
        """
        names = list(self.examples)
        given: list[Any] = [dict(zip(_keys(names), self.examples.values(), strict=True))]
        kind = type(type(self.model).__name__, (Traced,), {})  # errors show the class name of the model
        result = tx.load(
            kind(self),
            *given,
            dims={name: dict(axes) for name, axes in self.dims.items() if axes and name in self.examples},
            input_names=names,
            output_names=list(self.outputs),
            verify=False,
            simplify=None,
            share_weights=True,
        )
        for value in list(result.variables):
            plain = value.name.removeprefix(PREFIX)
            if plain != value.name and plain not in result.names():
                result.rename(value, plain)
        result.name = self.name
        return result


#: Prefix of parameter names in a traced part.
PREFIX = "model."


class Traced(torch.nn.Module):
    """Module wrapper of a part, with a dict of tensors as its only argument."""

    def __init__(self, part: Part) -> None:
        super().__init__()
        self.model = part.model
        self._call, self._names = part.call, list(part.examples)

    def forward(self, inputs: dict[str, Tensor]) -> list[Tensor]:
        tensors = [inputs[key] for key in _keys(self._names)]
        return list(self._call(dict(zip(self._names, tensors, strict=True))))


def _keys(names: Sequence[str]) -> list[str]:
    """Keys that sort in the order of the names, since PyTorch's pytrees sort dicts."""
    return [f"input{place:05d}" for place in range(len(names))]
