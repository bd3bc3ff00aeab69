"""``compile``: dispatches to a backend. Modules for backends other than numpy are imported lazily."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from numbers import Real
from typing import Any

from tenonnx import limits
from tenonnx.errors import InvalidCall
from tenonnx.graph.definitions import in_registry_of_graph
from tenonnx.graph.gc_paused import gc_paused
from tenonnx.graph.graph import Graph, Value
from tenonnx.graph.order import check_whole
from tenonnx.graph.program import Program
from tenonnx.transforms.decompose import refuse_opaque
from tenonnx_run.wrapped import WrappedProgram


class TimedProgram(WrappedProgram):
    """A program whose calls raise ``LimitExceeded`` after a number of seconds."""

    def __init__(self, program: Program, deadline: float) -> None:
        super().__init__(program)
        self._deadline = deadline

    def __call__(self, feeds: Mapping[str, Any]) -> dict[str, Any]:
        with limits.within(self._deadline):
            return self._program(feeds)


@in_registry_of_graph
def compile_graph(
    graph: Graph, backend: str = "auto", *, strict: bool = False, deadline: float | None = None, **options: Any
) -> Program:
    """Compile ``graph``.

    ``auto`` is the highest-ranked installed backend that accepts the graph and takes the options, else numpy. A backend
    that fails for another reason is named in a ``PluginWarning``. The rule is the same for training steps.

    ``state={input: output}`` names inputs that the program keeps and replaces with an output after each call; further
    options are the backend's own. If a backend cannot run the graph or a call, numpy runs it with a
    ``FallbackWarning``; with ``strict`` the error is raised. A call that exceeds ``deadline`` seconds raises
    ``LimitExceeded`` once the current op is done. Raises ``InvalidCall`` for an unknown backend or option,
    ``UnsupportedOp`` for a graph that cannot run. Ops that no package provides run only on a backend that has kernels
    for them (``takes_opaque``), without a fallback.
    """
    if deadline is None:
        return _compiled(graph, backend, strict, options)
    if not isinstance(deadline, Real) or not deadline > 0:
        raise InvalidCall("deadline is not a positive number of seconds", given=repr(deadline)[:80])
    return TimedProgram(_compiled(graph, backend, strict, options), float(deadline))


def run(
    graph: Graph, feeds: Mapping[str, Any], backend: str = "auto", *, outputs: Sequence[str | Value] | str | None = None
) -> dict[str, Any]:
    """Outputs or other values of a graph, see ``Graph.run``."""
    if outputs is None:
        return compile_graph(graph, backend)(feeds)
    from tenonnx.transforms.extract import extract

    several = [outputs] if isinstance(outputs, str | Value) else outputs
    names = [graph.find(value).name for value in several]
    part = extract(graph, None, names)
    unneeded = {v.name for v in graph.all_inputs} - {v.name for v in part.all_inputs}
    given = {name: array for name, array in feeds.items() if name not in unneeded}
    found = compile_graph(part, backend)(given)
    return {name: found[name] for name in names}


@gc_paused()
def _compiled(graph: Graph, backend: str, strict: bool, options: dict[str, Any]) -> Program:
    check_whole(graph)
    if backend == "numpy":
        from tenonnx_run.numpy import backend as numpy_backend

        refuse_opaque(graph, "run")
        return numpy_backend.compile(graph, **options)
    if backend != "auto":
        from tenonnx_run.installed import compile_by

        return compile_by(backend, graph, strict, options)
    from tenonnx_run.auto import compile_auto

    return compile_auto(graph, strict, options)
