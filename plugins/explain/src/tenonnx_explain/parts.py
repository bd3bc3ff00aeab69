"""Parts of a model as functions: the objective that is explained, and its gradient."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

import tenonnx_standard as ops
from tenonnx.extend import DType, Graph, InvalidCall, TensorType, Value, copy_graph, inline, subgraph
from tenonnx.extend.transforms import between, extract, grad, needed_nodes

#: Results of a part for inputs.
Function = Callable[..., list[Value]]


@dataclass(frozen=True)
class Explained:
    """The output to explain, the class of it, and the values that get attributions, of the graph under construction."""

    graph: Graph
    of: Value
    wrt: list[Value]
    target: int | None

    def part(self, wrt: Sequence[Value], of: Value | None = None) -> Graph:
        """The part of the graph from ``wrt`` to ``of``, with the graph inputs that it reads beside them behind."""
        of = self.of if of is None else of
        nodes = needed_nodes(self.graph, [of], set(wrt))
        read = {value for node in nodes for value in node.uses} | {of}
        if not read.intersection(wrt):
            names = ", ".join(value.name for value in wrt)
            raise InvalidCall(f'"{of.name}" does not depend on {names}')
        beside = [value for value in self.graph.all_inputs if value in read and value not in wrt]
        return extract(self.graph, [value.name for value in (*wrt, *beside)], [of.name])

    def beside(self, part: Graph, wrt: Sequence[Value]) -> list[Value]:
        """The values of the graph for the inputs of a part behind ``wrt``."""
        held = {value.name: value for value in self.graph.all_inputs}
        return [held[value.name] for value in part.all_inputs[len(wrt) :]]

    def function(self, wrt: Sequence[Value], of: Value | None = None) -> Function:
        """The part from ``wrt`` to ``of`` as a function of ``wrt``."""
        part = self.part(wrt, of)
        beside = self.beside(part, wrt)
        call = function_of(part, self.graph)
        return lambda *inputs: call(*inputs, *beside)

    def gradients(self, wrt: Sequence[Value]) -> Function:
        """A function of ``wrt`` and a cotangent of the output, which gives the gradients."""
        part = self.part(wrt)
        beside = self.beside(part, wrt)
        name = free_name(part, "cotangent")
        slope = grad(part, of=self.of.name, wrt=[value.name for value in wrt], seeds={self.of.name: name})
        call = function_of(slope, self.graph)
        return lambda *given: call(*given[:-1], *beside, given[-1])[1:]

    def selection(self) -> Value:
        """Ones for the class to explain of each row, zeros elsewhere, in the type of the output.

        Without ``target`` it is the class of the largest output, for each row on its own.
        """
        y = self.of
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
    """A graph as a function in another one, whose initializers of the same contents it reads."""
    held = {value.name: value for value in host.values() if value.is_constant}
    weights = {value for node in part.nodes for value in node.uses if value.is_constant}
    shared = [value for value in weights if value.name in held and held[value.name].data is value.data]
    whole = between(part, [*part.all_inputs, *shared], part.outputs)
    outer = [held[value.name] for value in shared]

    def call(*inputs: Value) -> list[Value]:
        found = inline(whole, [*inputs, *outer])
        assert all(value is not None for value in found)
        return [value for value in found if value is not None]

    return call


def repeated(step: Callable[..., Sequence[Value]], state: Sequence[Value], count: Value | int) -> list[Value]:
    """The state after ``step(number, *state)`` was applied ``count`` times."""
    kinds = [(f"sum_{k}", value.type) for k, value in enumerate(state)]
    number, goes_on = TensorType(DType.int64, ()), TensorType(DType.bool, ())
    body = subgraph(
        lambda number, goes_on, *held: [ops.identity(goes_on), *step(number, *held)],
        [("number", number), ("goes_on", goes_on), *kinds],
    )
    found = ops.loop(np.int64(count) if isinstance(count, int) else count, None, *state, body=body)
    return [found] if isinstance(found, Value) else list(found)


def free_name(graph: Graph, wanted: str) -> str:
    """The first of ``wanted``, ``wanted_1`` ... that no value of the graph has."""
    taken, name, count = graph.names(), wanted, 0
    while name in taken:
        count += 1
        name = f"{wanted}_{count}"
    return name


def with_default(graph: Graph, name: str, contents: np.ndarray) -> Value:
    """An input that has a default."""
    value = graph.variable(free_name(graph, name), contents)
    graph.all_inputs.append(value)
    return value


def per_row(values: Value) -> Value:
    """The sum of each row."""
    return values if values.ndim < 2 else ops.reduce_sum(values, list(range(1, values.ndim)), keepdims=0)


def fixed_dims(value: Value, purpose: str) -> tuple[int, ...]:
    """The dims of a row. Raises ``InvalidCall`` where one is dynamic."""
    shape = value.tensor.shape
    if shape is None or not shape or not all(isinstance(dim, int) for dim in shape[1:]):
        raise InvalidCall(
            f'{purpose} needs fixed dims of "{value.name}" behind the first', given=str(value.type), do="fix its dims"
        )
    return tuple(int(dim) for dim in shape[1:])  # type: ignore[arg-type]


def copied(graph: Graph) -> Graph:
    """A copy with all types inferred, to be extended."""
    return copy_graph(graph).infer()
