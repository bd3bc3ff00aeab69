"""One kernel call of a plan."""

from __future__ import annotations

from collections.abc import Callable
from operator import itemgetter
from typing import Any

from tenonnx.graph.graph import Node

Kernel = Callable[..., Any]


class Step:
    """One kernel call. ``reuse`` is the position of an input whose buffer the result may reuse, or -1.

    ``attributes`` are those of the call; None if some are subgraphs.
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
        #: the arguments from the slots; with one input the bare argument
        self.get: Callable[[list[Any]], Any] = itemgetter(*inputs) if inputs else lambda slots: ()
        self.dead: tuple[int, ...] = ()
        self.reuse = -1

    def with_kernel(self, kernel: Kernel) -> Step:
        """The same step with another kernel, which reuses no input buffer."""
        step = Step(self.node, kernel, self.inputs, self.outputs, self.attributes)
        step.dead = self.dead
        return step
