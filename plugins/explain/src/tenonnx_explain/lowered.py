"""Recognition of tree ensembles that were lowered to ops of ai.onnx."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from tenonnx.extend import Graph, Node, Value

Array = np.ndarray[Any, Any]

#: The fields of ``Forest`` but ``cover``: X, scores, features, thresholds, following, votes, roots, lowered.
Ensemble = tuple[Value, Value, Array, Array, Array, Array, int, int]

#: Ops that keep the elements of a tensor, in order.
_PASSING = ("Reshape", "Cast", "Identity", "Squeeze", "Unsqueeze")


def lowered_ensembles(graph: Graph) -> Iterator[Ensemble]:
    """Find ensembles in the form of this project's lowering, which walks all rows down tables of slots.

    A step computes ``following[slot] + (x[features[slot]] <= thresholds[slot])``. The last step indexes the votes,
    which are summed over the trees.
    """
    readers = graph.uses()
    for node in graph.nodes:
        step = _step(node)
        if step is not None and not any(_step(each) for each in _consumers(node.outputs[0], readers, "GatherElements")):
            ensemble = _ensemble(node, step, readers)
            if ensemble is not None:
                yield ensemble


def _step(node: Node) -> tuple[Value, Array, Array, Array] | None:
    """Match one step: its rows, and its tables of features, thresholds and following slots."""
    if node.op_type != "Add" or len(node.inputs) != 2:
        return None
    following = _table(_producer(node.inputs[0], "GatherElements"))
    below = _producer(node.inputs[1], "LessOrEqual")
    if following is None or below is None:
        return None
    thresholds = _table(_producer(below.inputs[1], "GatherElements"))
    gather = _producer(below.inputs[0], "GatherElements")
    features = None if gather is None else _table(_producer(gather.inputs[1], "GatherElements"))
    if thresholds is None or features is None or gather is None or gather.inputs[0] is None:
        return None
    return gather.inputs[0], features, thresholds, following


def _producer(value: Value | None, op_type: str) -> Node | None:
    """The node of this type that produces a value, directly or through ``_PASSING`` ops."""
    while value is not None and value.producer is not None:
        if value.producer.op_type == op_type:
            return value.producer
        if value.producer.op_type not in _PASSING:
            return None
        value = value.producer.inputs[0]
    return None


def _table(node: Node | None) -> Array | None:
    """The constant data of a node's first input; None if it is not constant."""
    if node is None or node.inputs[0] is None or node.inputs[0].data is None:
        return None
    return node.inputs[0].data.array()


def _consumers(value: Value | None, readers: dict[Value, list[Node]], *op_types: str) -> Iterator[Node]:
    """The consumers of a value, looking through ``_PASSING`` ops, LessOrEqual and the given op types."""
    for node in readers.get(value, ()) if value is not None else ():
        if node.op_type in (*op_types, *_PASSING, "LessOrEqual"):
            for output in node.outputs:
                yield from _consumers(output, readers, *op_types)
        else:
            yield node


def _ensemble(last: Node, step: tuple[Value, Array, Array, Array], readers: dict[Value, list[Node]]) -> Ensemble | None:
    """The ensemble whose last step is the node ``last``; None unless votes are gathered and summed after it."""
    rows, features, thresholds, following = step
    slots = last.outputs[0]
    while slots is not None:
        behind = readers.get(slots, [])
        votes = next((node for node in behind if node.op_type in ("Gather", "GatherElements")), None)
        if votes is not None:
            break
        passed = next((node for node in behind if node.op_type in _PASSING), None)
        slots = None if passed is None else passed.outputs[0]
    table = None if slots is None else _table(votes)
    if votes is None or table is None or len(table) != len(following):
        return None
    value, roots = votes.outputs[0], _trees(votes, readers)
    summed = _summed(value, readers)
    if summed is None or roots is None:
        return None
    x, lowered = _without_copies(rows)
    table = table.reshape(len(table), -1)
    return x, summed, features, thresholds, following, table, roots, lowered


def _summed(value: Value | None, readers: dict[Value, list[Node]]) -> Value | None:
    """The result of the ReduceSum over the trees; None if there is none."""
    while value is not None:
        node = next((node for node in readers.get(value, ()) if node.op_type in ("ReduceSum", *_PASSING)), None)
        value = None if node is None else node.outputs[0]
        if node is not None and node.op_type == "ReduceSum":
            return value
    return None


def _trees(votes: Node, readers: dict[Value, list[Node]]) -> int | None:
    """The number of trees: the second dim of the votes ``[rows, trees, ...]``, after a reshape if need be."""
    value = votes.outputs[0]
    while value is not None:
        shape = value.tensor.shape or ()
        if len(shape) > 1 and isinstance(shape[1], int):
            return shape[1]
        node = next((node for node in readers.get(value, ()) if node.op_type in _PASSING), None)
        value = None if node is None else node.outputs[0]
    return None


def _without_copies(rows: Value) -> tuple[Value, int]:
    """The rows without prepended copies of features that have minus infinity for NaN, and the number of the copies."""
    node = rows.producer
    if node is None or node.op_type != "Concat" or len(node.inputs) != 2:
        return rows, 0
    copies, original = node.inputs
    if copies is None or original is None or copies.producer is None or copies.producer.op_type != "Where":
        return rows, 0
    return original, _width(copies)


def _width(value: Value) -> int:
    shape: Sequence[Any] = value.tensor.shape or ()
    return int(shape[1]) if len(shape) == 2 and isinstance(shape[1], int) else 0
