"""Dynamic dims: replacing fixed dims of graph inputs by symbols."""

from __future__ import annotations

from collections.abc import Mapping

from tenonnx.errors import InvalidCall, InvalidModel
from tenonnx.graph.definitions import in_registry_of_graph
from tenonnx.graph.graph import Graph
from tenonnx.graph.symbolic import Dim, parse
from tenonnx.graph.types import TensorType
from tenonnx.op.graph_inference import infer
from tenonnx.transforms.dims import untyped


@in_registry_of_graph
def free_dims(graph: Graph, dims: Mapping[str, Mapping[int, str]]) -> Graph:
    """A copy of ``graph`` with symbols for dims of inputs, by name and axis.

    Raises ``InvalidCall`` for an unknown input or axis, and if a node requires the fixed size. Sizes in constants, such
    as the shape of a Reshape, are not detected: run the result at other sizes.
    """
    freed = with_symbols(graph, dims)
    check_types(freed, dims)
    return freed


def with_symbols(graph: Graph, dims: Mapping[str, Mapping[int, str]]) -> Graph:
    """``free_dims`` without type inference. Raises ``InvalidCall`` for an unknown input or axis."""
    freed = untyped(graph)
    inputs = {value.name: value for value in freed.all_inputs}
    for name, axes in dims.items():
        if name not in inputs:
            raise InvalidCall(f'no graph input "{name}" has dims to make dynamic', available=", ".join(inputs))
        value = inputs[name]
        shape: list[Dim] = list(value.shape)
        for axis, symbol in axes.items():
            if not -len(shape) <= axis < len(shape):
                raise InvalidCall(f'graph input "{name}" has no axis {axis}', given=str(value.type))
            if not symbol.isidentifier():
                raise InvalidCall("the name of a dynamic dim is not an identifier, such as batch", given=repr(symbol))
            shape[axis] = parse(symbol)
        value._replace_fields(type=TensorType(value.dtype, tuple(shape)))
    return freed


def check_types(freed: Graph, dims: Mapping[str, Mapping[int, str]]) -> None:
    """Infer the types of a graph with freed ``dims``. Raises ``InvalidCall`` if a node requires a fixed size."""
    try:
        infer(freed)
    except InvalidModel as error:
        said = "; ".join(f"{name}: {dict(axes)}" for name, axes in dims.items())
        raise InvalidCall(
            f"cannot make the dims dynamic: a node depends on their sizes: {error.what}",
            given=error.given or said,
            do="keep the static size, or edit that node",
        ) from error
