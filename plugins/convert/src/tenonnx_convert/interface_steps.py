"""Conversion steps that change the interface of a graph, with their options."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tenonnx.transforms.decorators import changing
from tenonnx_convert.options import option

if TYPE_CHECKING:
    from tenonnx.graph.graph import Graph
    from tenonnx_convert.interface import Permutations


@changing("interface")
@dataclass(frozen=True)
class Constants:
    """Make inputs constant."""

    constant: Mapping[str, Any] = option(
        {},
        "Make an input a constant: NAME=FILE.npy, or NAME=VALUE in JSON, such as scale=0.5. Repeatable.",
        "--constant",
        kind="contents",
        metavar="NAME=VALUE",
    )

    def __call__(self, graph: Graph) -> Graph:
        from tenonnx_convert.interface import fix_inputs

        return fix_inputs(graph, self.constant)


@changing("interface")
@dataclass(frozen=True)
class TransposeInputs:
    """Change the order of axes of inputs."""

    transpose_inputs: Permutations = option(
        {},
        "Change the order of axes of an input, such as image:0,2,3,1 for channels last. Repeatable.",
        "--transpose-inputs",
        kind="dims",
        metavar="NAME:AXES",
    )

    def __call__(self, graph: Graph) -> Graph:
        from tenonnx_convert.interface import transpose_interface

        return transpose_interface(graph, inputs=self.transpose_inputs)


@changing("interface")
@dataclass(frozen=True)
class TransposeOutputs:
    """Change the order of axes of outputs."""

    transpose_outputs: Permutations = option(
        {},
        "Change the order of axes of an output, such as image:0,2,3,1 for channels last. Repeatable.",
        "--transpose-outputs",
        kind="dims",
        metavar="NAME:AXES",
    )

    def __call__(self, graph: Graph) -> Graph:
        from tenonnx_convert.interface import transpose_interface

        return transpose_interface(graph, outputs=self.transpose_outputs)
