"""Compiling a graph for numpy: expand what has no numpy rule, fold what is static, plan the rest."""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping
from typing import Any

from tenonnx.backends.base import Array, FeedCheck, Program, StatefulProgram
from tenonnx.backends.numpy.plan import Plan, owned
from tenonnx.errors import InvalidCall
from tenonnx.graph.graph import Graph
from tenonnx.graph.values import Value
from tenonnx.op.rules import find_rule
from tenonnx.transforms.decompose import decompose

#: The floor of all backends: anything else that can run a graph is faster.
speed = 0


class NumpyProgram:
    """A planned graph. Calls share nothing that is written, so several threads may call it."""

    backend = "numpy"

    def __init__(self, graph: Graph) -> None:
        self.formals = list(graph.formals)
        self._check = FeedCheck(graph.formals)
        self.outputs = [value.name for value in graph.outputs]
        ready = decompose(graph, keep=lambda call: find_rule(call.op, "numpy") is not None)
        self.plan = Plan(ready)
        self.state: MutableMapping[str, Any] = {}

    def __call__(self, feeds: Mapping[str, Any]) -> dict[str, Any]:
        arrays = self._check(feeds)
        defaults = [_contents(v) if a is None else a for v, a in zip(self.formals, arrays, strict=True)]
        results = self.plan.run(defaults)
        return dict(zip(self.outputs, owned(results, defaults, self.plan), strict=True))


def _contents(value: Value) -> Array | None:
    return None if value.data is None else value.data.array()


def compile(graph: Graph, *, state: Mapping[str, str] | None = None, strict: bool = False, **options: Any) -> Program:
    """Make ``graph`` ready to run on numpy alone; there is nothing to fall back to, so ``strict`` changes nothing.

    Raises ``UnsupportedOp`` for ops without rule and body, ``InvalidCall`` for options that numpy does not have.
    """
    if options:
        raise InvalidCall("the numpy backend has few options", given=", ".join(options), available="state")
    program = NumpyProgram(graph)
    return StatefulProgram(program, graph, state) if state else program
