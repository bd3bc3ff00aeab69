"""``If`` and ``Loop`` with data-dependent conditions in a trace: ``torch.cond`` and ``while_loop``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import torch
from torch.ops import higher_order

from tenonnx.extend import Graph, NotRepresentable, Value
from tenonnx_standard.control_flow import counter_shape
from tenonnx_torch.shape_numbers import Numbers, as_tensor
from tenonnx_torch.values import NATIVE, is_fake, is_native

#: Maximum number of iterations that are unrolled; more become a loop.
_WRITTEN_OUT = 64


class Subgraph(Protocol):
    """A subgraph as an argument of rules, from contents to a tuple of contents."""

    graph: Graph

    @property
    def outside(self) -> list[Any]:
        """Contents that it reads in addition to its inputs, and None for tensors that it does not read."""
        ...

    def with_outside(self, outside: Sequence[Any]) -> Subgraph:
        """The same subgraph with other outside contents."""
        ...

    def __call__(self, *contents: Any) -> tuple[Any, ...]: ...


def depends_on_contents(*contents: Any) -> bool:
    """Whether a condition is a tensor with contents unknown to the trace."""
    return any(isinstance(each, torch.Tensor) and is_fake(each) for each in contents)


def traced_if(condition: torch.Tensor, then_branch: Subgraph, else_branch: Subgraph) -> tuple[Any, ...]:
    """The outputs of the selected branch. Raises ``NotRepresentable`` for branches with outputs other than tensors."""
    branches = (then_branch, else_branch)
    _check_tensors([value for branch in branches for value in branch.graph.outputs])
    outer = _Outer(branches)
    taken = [outer.function(k, lambda branch, _: branch()) for k in range(2)]
    found = higher_order.cond(condition.reshape(()), *taken, tuple(outer.tensors))
    return tuple(found)


def traced_loop(limit: Any, condition: Any, initial: Sequence[Any], body: Subgraph) -> tuple[Any, ...]:
    """Final values of a loop with a data-dependent condition, and its scan outputs.

    Scan outputs are preallocated for the loop's limit. Raises ``NotRepresentable`` where their number is
    data-dependent.
    """
    _check_tensors([*body.graph.inputs, *body.graph.outputs])
    states = len(initial)
    rows = body.graph.outputs[1 + states :]
    most = limit.ints[0] if isinstance(limit, Numbers) else None
    if rows and (most is None or not goes_on_always(condition, body)):
        given = ", ".join(value.name for value in rows)
        raise NotRepresentable("scan outputs of a Loop with a data-dependent trip count cannot be traced", given=given)
    number, going_on = (counter_shape(value) for value in body.graph.inputs[:2])
    start = torch.ones((), dtype=torch.bool) if condition is None else as_tensor(condition).reshape(())
    counted = [torch.zeros((), dtype=torch.int64), start.clone()]
    if limit is not None:
        counted.append(as_tensor(limit).reshape(()).to(torch.int64).clone())
    first = len(counted)
    carried = [*counted, *(as_tensor(each).clone() for each in initial), *(_buffer(value, most) for value in rows)]
    outer = _Outer((body,))

    def goes_on(branch: Subgraph, given: Sequence[Any]) -> Any:
        return given[1] if first == 2 else torch.logical_and(given[1], given[0] < given[2])

    def iterate(branch: Subgraph, given: Sequence[Any]) -> tuple[Any, ...]:
        current = given[first : first + states]
        found = branch(given[0].reshape(number), given[1].reshape(going_on), *current)
        again, *results = map(as_tensor, found)
        place = given[0].reshape(1)
        stacked = [
            buffer.index_copy(0, place, row.unsqueeze(0))
            for buffer, row in zip(given[first + states :], results[states:], strict=True)
        ]
        return (given[0] + 1, again.reshape(()), *given[2:first], *results[:states], *stacked)

    parts = [outer.function(0, step, len(carried)) for step in (goes_on, iterate)]
    return tuple(higher_order.while_loop(*parts, tuple(carried), tuple(outer.tensors))[first:])


def is_written_out(limit: Any, condition: Any, body: Subgraph) -> bool:
    """Whether the number of iterations is known, and small."""
    known = not depends_on_contents(limit) and limit is not None
    count = (limit.ints if isinstance(limit, Numbers) else limit.reshape(-1).tolist())[0] if known else None
    return isinstance(count, int) and count <= _WRITTEN_OUT and goes_on_always(condition, body)


def goes_on_always(condition: Any, body: Subgraph) -> bool:
    """Whether only the limit ends a loop."""
    begins = condition is None or (not depends_on_contents(condition) and bool(as_tensor(condition)))
    given, found = body.graph.inputs[1], body.graph.outputs[0]
    while found.producer is not None and found.producer.op_type == "Identity" and found.producer.domain == "ai.onnx":
        (source,) = found.producer.inputs
        if source is None:
            break
        found = source
    return begins and (found is given or (found.data is not None and bool(found.data.array().all())))


class _Outer:
    """Outer tensors that subgraphs read, which PyTorch's operators take as operands."""

    def __init__(self, branches: Sequence[Subgraph]) -> None:
        self._branches = branches
        self.tensors: list[torch.Tensor] = []
        self._places = [[self._put(each) for each in branch.outside] for branch in branches]

    def _put(self, content: Any) -> Any:
        if not isinstance(content, torch.Tensor):
            return content
        found = [place for place, tensor in enumerate(self.tensors) if tensor is content]
        if not found:
            self.tensors.append(content)
        return _Place(found[0] if found else len(self.tensors) - 1)

    def function(
        self, branch: int, step: Callable[[Subgraph, Sequence[Any]], Any], carried: int = 0
    ) -> Callable[..., Any]:
        """A function of carried values and outer tensors; copies its results, as PyTorch rejects aliases."""

        def call(*given: Any) -> Any:
            tensors = given[carried:]
            outside = [tensors[each] if isinstance(each, _Place) else each for each in self._places[branch]]
            found = step(self._branches[branch].with_outside(outside), given[:carried])
            if isinstance(found, torch.Tensor):
                return found.clone()
            return tuple(as_tensor(each).clone() for each in found)

        return call


class _Place(int):
    """Index of a tensor among the operands."""


def _buffer(row: Value, most: Any) -> torch.Tensor:
    sizes = row.tensor.shape
    if sizes is None or not all(isinstance(size, int) for size in sizes):
        raise NotRepresentable("scan outputs of unknown size cannot be traced", given=f"{row.name}: {row.type}")
    return torch.zeros([most, *sizes], dtype=NATIVE[row.tensor.dtype])


def _check_tensors(values: Sequence[Value]) -> None:
    wrong = [value for value in values if not is_native(value.type)]
    if wrong:
        given = ", ".join(f"{value.name}: {value.type}" for value in wrong)
        raise NotRepresentable("PyTorch traces no branches and loops of these types", given=given)
