"""What the interface of a graph is: inputs that are constants, and in which order axes lie."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any, TypeAlias

from tenonnx.errors import InvalidCall, TypeMismatch
from tenonnx.graph.constants import contents_given
from tenonnx.graph.definitions import in_registry_of_graph, operators
from tenonnx.graph.graph import Graph, Value
from tenonnx.op.build import building
from tenonnx.transforms.editing import replace_outputs

#: By name the order of axes, or names alone.
Permutations: TypeAlias = Mapping[str, Sequence[int]] | Iterable[str]


@in_registry_of_graph
def make_constant(graph: Graph, name: str, contents: Any) -> None:
    """Let an input be a variable with these contents, in place."""
    import numpy as np

    value = next((value for value in graph.all_inputs if value.name == name), None)
    if value is None:
        given = ", ".join(each.name for each in graph.all_inputs)
        raise InvalidCall(f'no graph input "{name}" to be constant', available=given)
    try:
        array = contents if isinstance(contents, np.ndarray) else np.asarray(contents, value.dtype.numpy)
    except (TypeError, ValueError) as error:
        raise TypeMismatch(
            f'the contents of input "{name}" must be {value.type}', given=repr(contents)[:200]
        ) from error
    with graph.editing():
        value.data = array
        value.become(type=contents_given(name, array).type)
        graph.all_inputs.remove(value)


@in_registry_of_graph
def transpose_interface(graph: Graph, inputs: Permutations, outputs: Permutations) -> None:
    """Let inputs and outputs lie in another order of axes, in place: dim k is dim ``order[k]`` of before.

    Raises ``InvalidCall`` for a name that is none, and an order that is none of the axes.
    """
    with graph.editing():
        for value, order in _orders(inputs, graph.all_inputs, "input"):
            shape = value.shape
            value.become(type=value.tensor.with_shape(tuple(shape[axis] for axis in order)))
            graph.declare_anew()
            back = [order.index(axis) for axis in range(len(order))]
            graph.insert_after(value, partial(_transposed, back))
        for value, order in _orders(outputs, graph.outputs, "output"):
            with building(graph, value.name):
                moved = operators().transpose(value, order)
            replace_outputs(graph, value, moved)
            graph.declare_anew()


def _transposed(order: Sequence[int], value: Value) -> Value:
    return operators().transpose(value, order)  # type: ignore[no-any-return]


def _orders(given: Permutations, values: Sequence[Value], kind: str) -> list[tuple[Value, list[int]]]:
    if isinstance(given, str):
        given = [given]
    wanted: dict[str, Any] = dict(given) if isinstance(given, Mapping) else dict.fromkeys(given)
    named = {value.name: value for value in values}
    found = []
    for name, order in wanted.items():
        if name not in named:
            raise InvalidCall(f'no graph {kind} "{name}" to transpose', available=", ".join(named))
        rank = named[name].ndim
        axes = [0, *range(2, rank), 1] if order is None else [int(axis) for axis in order]
        if sorted(axes) != list(range(rank)) or rank < 2:
            raise InvalidCall(
                f'the order of the axes of {kind} "{name}" must name each once',
                given=str(axes), available=f"{named[name].type}",
            )  # fmt: skip
        found.append((named[name], axes))
    return found
