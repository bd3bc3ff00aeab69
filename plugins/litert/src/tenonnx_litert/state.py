"""State of a graph, stored in variables of the file."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from tenonnx.extend import DType, Graph, InvalidCall, NotRepresentable, TensorType, Value, did_you_mean, listing
from tenonnx.extend.transforms import opened

#: Metadata key whose JSON value maps each state input to the output with its next value.
STATE = "tenonnx.state"

#: Suffix of the output with the next value of an input that has a default.
_NEXT = "_next"

#: Element types that the interpreter supports for variables.
_TYPES = (DType.float32, DType.int8, DType.int32, DType.int64, DType.bool)


class Signature(NamedTuple):
    """A graph of builtin operators, and its source graph, which has the names of the inputs and outputs.

    ``state`` maps state inputs to the outputs with their next values, ``first`` to their initial contents.
    """

    graph: Graph
    source: Graph
    state: Mapping[str, str] = {}
    first: Mapping[str, np.ndarray[Any, Any]] = {}


def state_of(graph: Graph) -> dict[str, str]:
    """State inputs, mapped to the outputs with their next values.

    The metadata ``tenonnx.state`` declares them. Each input with a default, such as ``total``, is one as well if there
    is an output ``total_next``. Raises ``InvalidCall`` if the metadata names an unknown input or output, and
    ``NotRepresentable`` if the types of a pair differ or no variable supports them.
    """
    inputs, outputs = ({v.name: v for v in values} for values in (graph.all_inputs, graph.outputs))
    state = _parse(graph.metadata[STATE]) if STATE in graph.metadata else {}
    for kind, names, known in (("input", state, inputs), ("output", state.values(), outputs)):
        for name in names:
            if name not in known:
                raise InvalidCall(
                    f'no graph {kind} "{name}" for state', available=listing(known), do=did_you_mean(name, known)
                )
    for name, value in inputs.items():
        if value.data is not None and name not in state and f"{name}{_NEXT}" in outputs:
            state[name] = f"{name}{_NEXT}"
    for name, after in state.items():
        _check_types(inputs[name], outputs[after])
    return state


def _parse(text: str) -> dict[str, str]:
    try:
        state = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidCall(f"the metadata {STATE} is no JSON", given=str(error)) from error
    if not isinstance(state, dict) or not all(isinstance(each, str) for each in state.values()):
        raise InvalidCall(f"the metadata {STATE} does not map inputs to outputs", given=text[:80])
    return state


def _check_types(before: Value, after: Value) -> None:
    """Raise ``NotRepresentable`` if the element types differ, or if LiteRT has no variables of the type."""
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


def with_state_open(graph: Graph, state: dict[str, str]) -> Graph:
    """``graph`` with its state inputs as required inputs."""
    return opened(graph, list(state)) if state else graph


def first_contents(graph: Graph, state: dict[str, str]) -> dict[str, np.ndarray[Any, Any]]:
    """Initial contents of the state by name: the input's default, else zeros.

    Raises ``NotRepresentable`` for a state that has dynamic dims and no default.
    """
    contents = {}
    for value in graph.all_inputs:
        if value.name not in state:
            continue
        if value.data is not None:
            contents[value.name] = np.asarray(value.data.array())
        elif value.shape is not None and all(isinstance(n, int) for n in value.shape):
            contents[value.name] = np.zeros(value.shape, value.dtype.numpy)
        else:
            raise NotRepresentable(
                f'state "{value.name}" has dynamic dims and no contents before the first call',
                given=str(value.type),
                do="fix its shape, or give the input a default",
            )
    return contents
