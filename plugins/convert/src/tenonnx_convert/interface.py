"""Changes to the interface of a graph: inputs as constants, and permuted axes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any, TypeAlias

from tenonnx.errors import InvalidCall, TypeMismatch
from tenonnx.graph.constants import contents_given
from tenonnx.graph.definitions import defined_by, operators
from tenonnx.graph.graph import Graph, Value
from tenonnx.op.build import building
from tenonnx.transforms.editing import replace_outputs
from tenonnx.transforms.rewrite import copy_graph

#: Permutations of axes by name, or just names.
Permutations: TypeAlias = Mapping[str, Sequence[int]] | Iterable[str]


def fix_inputs(graph: Graph, constants: Mapping[str, Any]) -> Graph:
    """A graph in which inputs, by name, become initializers with these contents.

    Raises ``InvalidCall`` for an unknown input, and ``TypeMismatch`` for contents of another type.
    """
    graph = copy_graph(graph)
    with defined_by(graph.registry), graph.editing():
        for name, contents in constants.items():
            _make_constant(graph, name, contents)
    return graph


def _make_constant(graph: Graph, name: str, contents: Any) -> None:
    import numpy as np

    value = next((value for value in graph.all_inputs if value.name == name), None)
    if value is None:
        given = ", ".join(each.name for each in graph.all_inputs)
        raise InvalidCall(f'no graph input "{name}" to make constant', available=given)
    try:
        array = contents if isinstance(contents, np.ndarray) else np.asarray(contents, value.dtype.numpy)
    except (TypeError, ValueError) as error:
        what = f'the contents of input "{name}" are not {value.type}'
        raise TypeMismatch(what, given=repr(contents)[:200]) from error
    value.data = array
    value._replace_fields(type=contents_given(name, array).type)
    graph.all_inputs.remove(value)


def transpose_interface(graph: Graph, inputs: Permutations = (), outputs: Permutations = ()) -> Graph:
    """A graph whose inputs and outputs have permuted axes: new dim k is old dim ``order[k]``.

    ``inputs`` and ``outputs`` are permutations by name, ``{"image": [0, 2, 3, 1]}``, or names of values to convert from
    channels first to channels last. Raises ``InvalidCall`` for an unknown name, and for an invalid permutation.
    """
    graph = copy_graph(graph)
    with defined_by(graph.registry), graph.editing():
        for value, order in _orders(inputs, graph.all_inputs, "input"):
            shape = value.shape
            value._replace_fields(type=value.tensor.with_shape(tuple(shape[axis] for axis in order)))
            graph.root.retyped = True
            back = [order.index(axis) for axis in range(len(order))]
            graph.insert_after(value, partial(_transpose, back))
        for value, order in _orders(outputs, graph.outputs, "output"):
            with building(graph, value.name):
                moved = operators().transpose(value, order)
            replace_outputs(graph, value, moved)
            graph.root.retyped = True
    return graph


def _transpose(order: Sequence[int], value: Value) -> Value:
    return operators().transpose(value, order)  # type: ignore[no-any-return]


def _orders(given: Permutations, values: Sequence[Value], kind: str) -> list[tuple[Value, list[int]]]:
    if isinstance(given, str):
        given = [given]
    wanted: dict[str, Any] = dict(given) if isinstance(given, Mapping) else dict.fromkeys(given)
    named = {value.name: value for value in values}
    result = []
    for name, order in wanted.items():
        if name not in named:
            raise InvalidCall(f'no graph {kind} "{name}" to transpose', available=", ".join(named))
        rank = named[name].ndim
        axes = [0, *range(2, rank), 1] if order is None else [int(axis) for axis in order]
        if sorted(axes) != list(range(rank)) or rank < 2:
            raise InvalidCall(
                f'the order of axes of {kind} "{name}" does not name each axis once',
                given=str(axes),
                available=f"{named[name].type}",
            )
        result.append((named[name], axes))
    return result
