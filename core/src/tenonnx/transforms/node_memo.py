"""Memoization of decisions for nodes with identical op, attributes and types."""

from __future__ import annotations

from collections.abc import Hashable
from typing import TYPE_CHECKING, Any

from tenonnx.graph.constants import Constant, Contents
from tenonnx.graph.graph import Node, Value

if TYPE_CHECKING:
    import numpy as np


def kind_of(node: Node) -> Hashable | None:
    """Key shared by identical nodes: op, version, attributes and the types of their inputs.

    None for a node that cannot be shared: with subgraphs, tensor attributes, or symbolic contents.
    """
    inputs: list[Any] = []
    for value in node.inputs:
        if value is None:
            inputs.append(None)
        elif value.symbolic_contents is None:
            inputs += (value.type, value.data is None)
        else:
            return None
    attributes: list[Any] = []
    for name, attribute in node.attributes.items():
        kind = type(attribute)
        if kind in _PLAIN:
            attributes += (name, kind, attribute)
        elif isinstance(attribute, list) and _PLAIN.issuperset(kinds := tuple(map(type, attribute))):
            attributes += (name, kinds, tuple(attribute))
        else:
            return None
    present = tuple([value is None for value in node.outputs])
    return node.op, node.version, present, tuple(inputs), tuple(attributes)


_PLAIN = {int, float, str}


class TrackedConstant(Contents):
    """Contents that record whether they were read."""

    def __init__(self, contents: Constant) -> None:
        self.contents, self.type, self.nbytes = contents, contents.type, contents.nbytes
        self.was_read = False

    def array(self) -> np.ndarray[Any, Any]:
        self.was_read = True
        return self.contents.array()


def tracked(value: Value | None) -> Value | None:
    """A copy of ``value`` with ``TrackedConstant`` contents, if it has any."""
    if value is None or value.data is None:
        return value
    return Value(value.name, value.type, data=TrackedConstant(value.data), graph=value.graph)


def were_read(node: Node) -> bool:
    """Whether tracked contents of an input of the node were read."""
    return any(v is not None and isinstance(v.data, TrackedConstant) and v.data.was_read for v in node.inputs)
