"""Dims of graph inputs: fixed to numbers, or freed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tenonnx.errors import InvalidCall, InvalidModel
from tenonnx.graph.definitions import in_registry_of_graph
from tenonnx.graph.graph import Graph
from tenonnx.graph.symbolic import Dim, parse
from tenonnx.graph.types import TensorType
from tenonnx.op.graph_inference import ensure_inferred, infer
from tenonnx.op.op import Op
from tenonnx.transforms.rewrite import copy_graph


@in_registry_of_graph
def fix_shapes(graph: Graph, shapes: Mapping[str, Sequence[int | str | None]]) -> Graph:
    """A copy of ``graph`` whose inputs have these dims: numbers for symbols, wherever those stand.

    A dim that is given as None stays. The copy declares the types that follow. Raises ``InvalidCall`` for an input that
    there is not, another rank, and a number in place of another, ``InvalidModel`` where a node does not take the sizes.
    """
    fixed = untyped(graph)
    infer(fixed, shapes)
    return fixed


@in_registry_of_graph
def free_dims(graph: Graph, dims: Mapping[str, Mapping[int, str]]) -> Graph:
    """A copy of ``graph`` in which dims of inputs, by name and axis, are symbols in place of numbers.

    Raises ``InvalidCall`` for an input or axis that there is not, and where a node counts on the number. What a file
    says by contents, such as the shape that a Reshape is given, is not seen here: run the result at other sizes.
    """
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
                raise InvalidCall("a dynamic dim needs a name, such as batch", given=repr(symbol))
            shape[axis] = parse(symbol)
        value.become(type=TensorType(value.dtype, tuple(shape)))
    try:
        infer(freed)
    except InvalidModel as error:
        said = "; ".join(f"{name}: {dict(axes)}" for name, axes in dims.items())
        raise InvalidCall(
            f"dims can be made dynamic only where no node depends on their sizes: {error.what}",
            given=error.given or said,
            do="keep the static size, or edit that node",
        ) from error
    return freed


def untyped(graph: Graph) -> Graph:
    """A copy that knows nothing of computed values but what nobody else can tell, and declares types anew."""
    copy = copy_graph(graph)
    ensure_inferred(copy)
    for node in copy.walk():
        for value in node.outputs if isinstance(node.op, Op) else ():
            if value is not None:
                value.forget()
    copy.forget_declared()
    return copy
