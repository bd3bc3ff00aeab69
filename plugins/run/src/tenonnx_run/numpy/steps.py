"""One kernel call of a plan."""

from __future__ import annotations

from collections.abc import Callable
from operator import itemgetter
from typing import Any

from tenonnx.graph.graph import Node

Kernel = Callable[..., Any]


class Step:
    """One kernel call. ``reuse`` is the position of an input whose buffer may take the result, or -1.

    ``attributes`` are those of the call, None where subgraphs are among them.
    """

    __slots__ = ("attributes", "dead", "get", "inputs", "kernel", "node", "outputs", "reuse")

    def __init__(
        self,
        node: Node,
        kernel: Kernel,
        inputs: tuple[int, ...],
        outputs: tuple[int, ...],
        attributes: dict[str, Any] | None,
    ) -> None:
        self.node = node
        self.kernel = kernel
        self.inputs = inputs
        self.outputs = outputs
        self.attributes = attributes
        #: The arguments among the slots; of one input the argument itself.
        self.get: Callable[[list[Any]], Any] = itemgetter(*inputs) if inputs else lambda slots: ()
        self.dead: tuple[int, ...] = ()
        self.reuse = -1

    def with_kernel(self, kernel: Kernel) -> Step:
        """The same step by another kernel, which writes into no buffer of its inputs."""
        step = Step(self.node, kernel, self.inputs, self.outputs, self.attributes)
        step.dead = self.dead
        return step
