"""Parts of a model as functions: the explained output, and its gradient."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

import tenonnx_standard as ops
from tenonnx.extend import DType, Graph, InvalidCall, TensorType, Value, copy_graph, inline, subgraph
from tenonnx.extend.transforms import between, extract, grad, needed_nodes

#: A function of values that computes a part of a graph.
Function = Callable[..., list[Value]]


@dataclass(frozen=True)
class Explained:
    """The explained ``output``, its class ``target``, and the values ``wrt`` that get attributions.

    All belong to ``graph``, which is under construction. ``target`` None means the class with the largest output.
    """

    graph: Graph
    output: Value
    wrt: list[Value]
    target: int | None

    def subgraph(self, wrt: Sequence[Value], of: Value | None = None) -> Graph:
        """The nodes from ``wrt`` to ``of`` as a graph, followed by the other graph inputs that they read.

        ``of`` is the explained output by default. Raises ``InvalidCall`` if ``of`` does not depend on ``wrt``.
        """
        of = self.output if of is None else of
        nodes = needed_nodes(self.graph, [of], set(wrt))
        read = {value for node in nodes for value in node.uses} | {of}
        if not read.intersection(wrt):
            names = ", ".join(value.name for value in wrt)
            raise InvalidCall(f'"{of.name}" does not depend on {names}')
        others = [value for value in self.graph.all_inputs if value in read and value not in wrt]
        return extract(self.graph, [value.name for value in (*wrt, *others)], [of.name])

    def other_inputs(self, part: Graph, wrt: Sequence[Value]) -> list[Value]:
        """The values of the graph for the inputs of a part after ``wrt``."""
        by_name = {value.name: value for value in self.graph.all_inputs}
        return [by_name[value.name] for value in part.all_inputs[len(wrt) :]]

    def function(self, wrt: Sequence[Value], of: Value | None = None) -> Function:
        """The part from ``wrt`` to ``of`` as a function of ``wrt``."""
        part = self.subgraph(wrt, of)
        others = self.other_inputs(part, wrt)
        call = function_of(part, self.graph)
        return lambda *inputs: call(*inputs, *others)

    def gradients(self, wrt: Sequence[Value]) -> Function:
        """A function of ``wrt`` and a cotangent of the output that returns the gradients."""
        part = self.subgraph(wrt)
        others = self.other_inputs(part, wrt)
        name = free_name(part, "cotangent")
        backward = grad(part, of=self.output.name, wrt=[value.name for value in wrt], seeds={self.output.name: name})
        call = function_of(backward, self.graph)
        return lambda *inputs: call(*inputs[:-1], *others, inputs[-1])[1:]

    def selection(self) -> Value:
        """A one-hot mask of the explained class of each row, in the dtype of the output.

        Without ``target``, it is the class with the largest output in each row. Raises ``InvalidCall`` for an unknown
        class and for an output of unknown rank.
        """
        y = self.output
        if y.rank is None:
            raise InvalidCall(f'cannot explain "{y.name}": its rank is not known')
        if y.ndim < 2:
            return ops.ones_like(y)
        classes = y.shape[-1]
        if self.target is not None:
            if isinstance(classes, int) and not 0 <= self.target < classes:
                raise InvalidCall(f'"{y.name}" has no class {self.target}', available=f"0 to {classes - 1}")
            numbers = ops.range_(np.int64(0), ops.shape(y, start=-1)[0], np.int64(1))
            return ops.zeros_like(y) + ops.cast(ops.equal(numbers, np.int64(self.target)), to=y.dtype)
        if classes == 1:
            return ops.ones_like(y)
        numbers = ops.range_(np.int64(0), ops.shape(y, start=-1)[0], np.int64(1))
        return ops.cast(ops.equal(ops.argmax(y, axis=-1, keepdims=1), numbers), to=y.dtype)


def function_of(part: Graph, host: Graph) -> Function:
    """``part`` as a function in the graph ``host``; it shares the initializers of ``host`` instead of copying them."""
    constants = {value.name: value for value in host.values() if value.is_constant}
    weights = {value for node in part.nodes for value in node.uses if value.is_constant}
    shared = [value for value in weights if value.name in constants and constants[value.name].data is value.data]
    body = between(part, [*part.all_inputs, *shared], part.outputs)
    outer = [constants[value.name] for value in shared]

    def call(*inputs: Value) -> list[Value]:
        results = inline(body, [*inputs, *outer])
        assert all(value is not None for value in results)
        return [value for value in results if value is not None]

    return call


def repeated(step: Callable[..., Sequence[Value]], state: Sequence[Value], count: Value | int) -> list[Value]:
    """Apply ``step(number, *state)`` ``count`` times in a Loop; returns the final state."""
    kinds = [(f"sum_{k}", value.type) for k, value in enumerate(state)]
    number, goes_on = TensorType(DType.int64, ()), TensorType(DType.bool, ())
    body = subgraph(
        lambda number, goes_on, *values: [ops.identity(goes_on), *step(number, *values)],
        [("number", number), ("goes_on", goes_on), *kinds],
    )
    final = ops.loop(np.int64(count) if isinstance(count, int) else count, None, *state, body=body)
    return [final] if isinstance(final, Value) else list(final)


def free_name(graph: Graph, wanted: str) -> str:
    """The first of ``wanted``, ``wanted_1``, ... that is not a name of a value in the graph."""
    used, name, count = graph.names(), wanted, 0
    while name in used:
        count += 1
        name = f"{wanted}_{count}"
    return name


def with_default(graph: Graph, name: str, contents: np.ndarray) -> Value:
    """Add an input with a default."""
    value = graph.variable(free_name(graph, name), contents)
    graph.all_inputs.append(value)
    return value


def per_row(values: Value) -> Value:
    """The sum over all axes but the first."""
    return values if values.ndim < 2 else ops.reduce_sum(values, list(range(1, values.ndim)), keepdims=0)


def fixed_dims(value: Value, purpose: str) -> tuple[int, ...]:
    """All dims but the first. Raises ``InvalidCall`` if one is dynamic."""
    shape = value.tensor.shape
    if shape is None or not shape or not all(isinstance(dim, int) for dim in shape[1:]):
        raise InvalidCall(
            f'{purpose} needs fixed dims of "{value.name}" after the first', given=str(value.type), do="fix its dims"
        )
    return tuple(int(dim) for dim in shape[1:])  # type: ignore[arg-type]


def copied(graph: Graph) -> Graph:
    """A copy of a graph with all types inferred."""
    return copy_graph(graph).infer()
