"""Split graphs: broken ops of the extensions' library run on numpy, the rest on the runtime."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from tenonnx.extend import FallbackWarning, Op, TenonnxError
from tenonnx.extend.backends import Bindable, FeedCheck, Program, compile_graph, fall_back
from tenonnx.extend.transforms import ensure_inferred, extract
from tenonnx_onnxruntime.extensions import is_of_library

if TYPE_CHECKING:
    from tenonnx.extend import Graph, Node, Value


def split(graph: Graph, reason: TenonnxError, make: Callable[[Graph], Program]) -> Program:
    """A program of parts; ``make`` compiles those without ops of the library.

    If nothing is left for the runtime, the entire graph runs on numpy. A ``FallbackWarning`` states the reason.
    """
    ensure_inferred(graph)
    stages = _stages(graph)
    if all(stage % 2 for stage in stages.values()):
        return fall_back(graph, reason)
    program = SplitProgram(graph, stages, make)
    warnings.warn(FallbackWarning(f"numpy runs the ops of the extensions' library: {reason}"), stacklevel=3)
    return program


def _stages(graph: Graph) -> dict[Node, int]:
    """The stage of each node, after its producers: even stages are for the runtime, odd ones for numpy."""
    stages: dict[Node, int] = {}
    for node in graph.nodes:
        odd = isinstance(node.op, Op) and node.op.primitive and is_of_library(node.op)
        odd = odd or any(is_of_library(inner.op) for part in node.subgraphs for inner in part.walk())
        before = [stages[v.producer] for v in node.uses if v.producer in stages]
        first = max(before, default=0)
        stages[node] = first + (first % 2 != odd)
    return stages


class SplitProgram(Bindable):
    """Parts of a graph, each with its program, called in order."""

    backend = "onnxruntime"
    is_plain = False

    def __init__(self, graph: Graph, stages: Mapping[Node, int], make: Callable[[Graph], Program]) -> None:
        self.state: dict[str, Any] = {}
        self._check = FeedCheck(graph.all_inputs)
        self._inputs = [value.name for value in graph.all_inputs]
        self._outputs = [value.name for value in graph.outputs]
        self._parts: list[tuple[list[str], Program]] = []
        for stage in sorted(set(stages.values())):
            part = _part(graph, stages, stage)
            program = compile_graph(part, "numpy") if stage % 2 else make(part)
            self._parts.append(([value.name for value in part.all_inputs], program))

    def __call__(self, feeds: Mapping[str, Any]) -> dict[str, Any]:
        values = dict(zip(self._inputs, self._check(feeds), strict=True))
        values = {name: value for name, value in values.items() if value is not None}
        for inputs, program in self._parts:
            values |= program({name: values[name] for name in inputs if name in values})
        return {name: values[name] for name in self._outputs}


def _part(graph: Graph, stages: Mapping[Node, int], stage: int) -> Graph:
    """The nodes of a stage as a graph."""
    inside = [node for node, of in stages.items() if of == stage]
    computed = dict.fromkeys(value for node in inside for value in node.outputs)
    read = dict.fromkeys(v for node in inside for v in node.uses if v not in computed and _is_fed(v))
    later = {v for node, of in stages.items() if of > stage for v in node.uses}
    wanted = [v.name for v in computed if v in later or v in graph.outputs]
    return extract(graph, [value.name for value in read], wanted)


def _is_fed(value: Value) -> bool:
    return value.producer is not None or value.data is None or value in value.graph.all_inputs
