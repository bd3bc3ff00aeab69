"""``compile``: a graph to a program. Modules for other backends than numpy are imported when they are needed."""

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
    """A program whose calls end within so many seconds, or raise ``LimitExceeded``."""

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
    """Make ``graph`` ready to run.

    ``auto`` is the installed backend of the highest rank that accepts the graph and takes the options, numpy where
    there is none; one that fails otherwise is named in a ``PluginWarning``. Training steps follow the same rule.

    ``state={input: output}`` names inputs that live in the program and are replaced by an output after each call;
    further options are the backend's own. A backend that cannot run the graph, or refuses a call, gives way to numpy
    with a ``FallbackWarning``, or raises when ``strict``. Each call must end within ``deadline`` seconds, or raises
    ``LimitExceeded`` once the op at work is done. Raises ``InvalidCall`` for a backend or option that there is not,
    ``UnsupportedOp`` for a graph that cannot run. Ops that no package provides run on a backend that has kernels of
    them (``takes_opaque``), which then has nothing to give way to.
    """
    if deadline is None:
        return _compiled(graph, backend, strict, options)
    if not isinstance(deadline, Real) or not deadline > 0:
        raise InvalidCall("deadline is not a positive number of seconds", given=repr(deadline)[:80])
    return TimedProgram(_compiled(graph, backend, strict, options), float(deadline))


def run(
    graph: Graph, feeds: Mapping[str, Any], backend: str = "auto", *, outputs: Sequence[str | Value] | str | None = None
) -> dict[str, Any]:
    """The outputs of a graph, or other values of it, see ``Graph.run``."""
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
