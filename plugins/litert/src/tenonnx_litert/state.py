"""State of graphs, as variables of a file."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from tenonnx.extend import DType, Graph, InvalidCall, NotRepresentable, TensorType, Value, did_you_mean, listing
from tenonnx.extend.transforms import opened

#: The entry of the metadata that maps each input of the state to the output that replaces it, as JSON.
STATE = "tenonnx.state"

#: What the output for an input with a default is called.
_NEXT = "_next"

#: Element types that the interpreter's variables have.
_TYPES = (DType.float32, DType.int8, DType.int32, DType.int64, DType.bool)


class Signature(NamedTuple):
    """A graph of builtin operators, and the graph that it was made of, which has the names of inputs and outputs.

    ``state`` maps inputs to the outputs that replace them, ``first`` to what they hold before the first call.
    """

    graph: Graph
    source: Graph
    state: Mapping[str, str] = {}
    first: Mapping[str, np.ndarray[Any, Any]] = {}


def state_of(graph: Graph) -> dict[str, str]:
    """Inputs of the state, and the outputs that replace them.

    They are in the metadata ``tenonnx.state``; further ones are inputs with a default, such as ``total``, for which
    there is an output of the same type called ``total_next``. Raises ``InvalidCall`` for metadata that fits no input or
    output.
    """
    inputs, outputs = ({v.name: v for v in values} for values in (graph.all_inputs, graph.outputs))
    found = _given(graph.metadata[STATE]) if STATE in graph.metadata else {}
    for kind, names, known in (("input", found, inputs), ("output", found.values(), outputs)):
        for name in names:
            if name not in known:
                raise InvalidCall(
                    f'no graph {kind} "{name}" for state', available=listing(known), do=did_you_mean(name, known)
                )
    for name, value in inputs.items():
        if value.data is not None and name not in found and f"{name}{_NEXT}" in outputs:
            found[name] = f"{name}{_NEXT}"
    return {name: after for name, after in found.items() if _is_alike(inputs[name], outputs[after])}


def _given(text: str) -> dict[str, str]:
    try:
        found = json.loads(text)
    except ValueError as error:
        raise InvalidCall(f"the metadata {STATE} is no JSON", given=str(error)) from error
    if not isinstance(found, dict) or not all(isinstance(each, str) for each in found.values()):
        raise InvalidCall(f"the metadata {STATE} does not map inputs to outputs", given=text[:80])
    return found


def _is_alike(before: Value, after: Value) -> bool:
    """Whether one may replace the other. Raises ``NotRepresentable`` for a type that no variable has."""
    kind = before.type
    if not isinstance(kind, TensorType) or not isinstance(after.type, TensorType) or kind.dtype is not after.dtype:
        raise NotRepresentable(
            f'state "{before.name}" is replaced by an output of another type',
            given=f"{kind} by {after.type}",
        )
    if kind.dtype not in _TYPES:
        raise NotRepresentable(
            f'LiteRT has no variables of the type of "{before.name}"',
            given=kind.dtype.name,
            available=", ".join(each.name for each in _TYPES),
        )
    return True


def with_state_open(graph: Graph, state: dict[str, str]) -> Graph:
    """``graph`` whose state is fed like other inputs."""
    return opened(graph, list(state)) if state else graph


def first_contents(graph: Graph, state: dict[str, str]) -> dict[str, np.ndarray[Any, Any]]:
    """Contents of the state before the first call: its default, else zeros.

    Raises ``NotRepresentable`` for a state without default that has dynamic dims.
    """
    found = {}
    for value in graph.all_inputs:
        if value.name not in state:
            continue
        if value.data is not None:
            found[value.name] = np.asarray(value.data.array())
        elif value.shape is not None and all(isinstance(n, int) for n in value.shape):
            found[value.name] = np.zeros(value.shape, value.dtype.numpy)
        else:
            raise NotRepresentable(
                f'state "{value.name}" has dynamic dims and no contents before the first call',
                given=str(value.type),
                do="fix its shape, or give the input a default",
            )
    return found
