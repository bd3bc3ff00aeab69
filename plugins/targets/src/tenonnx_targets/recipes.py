"""Recorded replacements of a call, replayed for calls with the same op, attributes and types."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from tenonnx.extend import Graph, Node, Op, Value
from tenonnx.extend.symbolic import symbols_of
from tenonnx.extend.transforms import Call, Retargeting

#: Larger constants are not part of the kind of a call.
SMALL = 1024

#: Place of a value: an index into the inputs of the call followed by the new values, a constant, or None.
_Place = int | Value | None


class _Output(NamedTuple):
    """An output of a node: its inferred type and known contents."""

    type: Any
    symbolic_contents: Any
    data: Any


class _Step(NamedTuple):
    """One node of a recipe."""

    op: Op[Any]
    version: int
    inputs: Sequence[_Place]
    attributes: Mapping[str, Any]
    outputs: Sequence[_Output | None]


@dataclass(frozen=True, slots=True)
class Recipe:
    """The nodes and results of a call that was replaced by ``action``."""

    action: str
    steps: Sequence[_Step]
    results: Sequence[_Place]

    def replay(self, retargeting: Retargeting, call: Call) -> list[Value | None]:
        """Add the recorded nodes for a call of the same kind; returns its results."""
        values = list(call.inputs)

        def at(place: _Place) -> Value | None:
            return values[place] if isinstance(place, int) else retargeting.adopt(place)

        prefix = f"{retargeting.prefix}/" if retargeting.prefix else ""
        for step in self.steps:
            inputs = [at(place) for place in step.inputs]
            new_values: list[Value | None] = []
            for each in step.outputs:
                value = None
                if each is not None:
                    value = Value(retargeting.name(prefix + step.op.name), each.type, data=each.data)
                    value.symbolic_contents = each.symbolic_contents
                new_values.append(value)
            name = next((value.name for value in new_values if value is not None), prefix + step.op.name)
            retargeting.append(Node(step.op, step.version, inputs, step.attributes, new_values, name=name))
            values += new_values
        return [at(place) for place in self.results]


def recipe(action: str, call: Call, nodes: Sequence[Node], results: Sequence[Value | None]) -> Recipe | None:
    """Record the replacement of a call by these nodes.

    None if they depend on more than the kind of the call: large contents, subgraphs, other values of the graph, or dims
    that the nodes introduce.
    """
    if any(value is not None and not _is_in_kind(value) for value in call.inputs):
        return None
    places: dict[Value | None, _Place] = {value: place for place, value in enumerate(call.inputs)}
    places[None] = None
    symbols = {symbol for value in call.inputs if value is not None for symbol in _symbols(value)}
    steps, count = [], len(call.inputs)
    for node in nodes:
        outputs = [value for value in node.outputs if value is not None]
        known = all(_is_recordable(value, places) for value in node.inputs) and all(
            _symbols(v) <= symbols for v in outputs
        )
        if not known or not isinstance(node.op, Op) or node.captures or _has_subgraph(node.attributes):
            return None
        recipe_outputs = [None if v is None else _Output(v.type, v.symbolic_contents, v.data) for v in node.outputs]
        inputs = [_placed(value, places) for value in node.inputs]
        steps.append(_Step(node.op, node.version, inputs, dict(node.attributes), recipe_outputs))
        places.update((value, count + place) for place, value in enumerate(node.outputs) if value is not None)
        count += len(node.outputs)
    if not all(_is_recordable(value, places) for value in results):
        return None
    return Recipe(action, steps, [_placed(value, places) for value in results])


def _is_in_kind(value: Value) -> bool:
    """Whether the kind of a call covers everything that a lowering may read of an input."""
    return value.data is None or (value.data.nbytes <= SMALL and value.role is None)


def _is_recordable(value: Value | None, places: Mapping[Value | None, _Place]) -> bool:
    """Whether a value has a place, or is a constant without a role in training."""
    return value in places or (value is not None and value.producer is None and _is_free(value))


def _is_free(value: Value) -> bool:
    return value.data is not None and value.role is None


def _placed(value: Value | None, places: Mapping[Value | None, _Place]) -> _Place:
    if value is None or value in places:
        return places[value]
    return Value(value.name, value.type, data=value.data)


def _symbols(value: Value) -> set[str]:
    """The symbols of the shape and the contents of a value."""
    dims = [*(getattr(value.type, "shape", None) or ())]
    dims += [] if value.symbolic_contents is None else np.asarray(value.symbolic_contents, object).reshape(-1).tolist()
    return {symbol for dim in dims for symbol in symbols_of(dim)}


def _has_subgraph(attributes: Mapping[str, Any]) -> bool:
    return any(isinstance(each, Graph | list) and _holds_graph(each) for each in attributes.values())


def _holds_graph(attribute: Any) -> bool:
    return isinstance(attribute, Graph) or any(isinstance(each, Graph) for each in attribute)
