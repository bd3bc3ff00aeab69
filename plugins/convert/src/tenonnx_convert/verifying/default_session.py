"""Default sessions: a model on a backend with default options, as most users run it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tenonnx.errors import OutOfTime, TenonnxError, UnsupportedOp
from tenonnx.graph.graph import Graph
from tenonnx.graph.program import Program
from tenonnx_convert.verifying.compare_outputs import Judge
from tenonnx_convert.verifying.verification import DefaultSession, OutputDifference, Verification
from tenonnx_run.base import backends, load_backend
from tenonnx_run.compiling import compile_graph
from tenonnx_run.worker import NoAnswer, OutOfMemory, ProcessCrashed, WorkerEnded
from tenonnx_run.written_file import file_of


def _part(backend: str, name: str) -> Any:
    """Attribute of a backend's module, None if it lacks it."""
    return getattr(load_backend(backend), name, None) if backend in backends() else None


def start_default_sessions(chosen: Sequence[str]) -> None:
    """Start the processes of default sessions early, since their imports are slow."""
    for backend in chosen:
        if (start := _part(backend, "start_default_sessions")) is not None:
            start()


def has_default_session(backend: str) -> bool:
    """Whether a backend can run files in a session with default options."""
    return _part(backend, "plain") is not None


def default_program(graph: Graph, backend: str) -> Program:
    """Compile the file of a graph in a default session of a backend.

    Raises ``UnsupportedOp`` if it does not load, ``WorkerEnded`` if it crashes the worker process.
    """
    program: Program = _part(backend, "plain")(graph)
    return program


def safe_program(graph: Graph, backend: str) -> Program:
    """A program in a default session if its outputs would equal those of the backend's own session, else the latter.

    A default session runs in another process, so a crash of the runtime does not end this one.
    """
    if has_default_session(backend) and not _part(backend, "differs_by_default")(graph):
        try:
            return default_program(graph, backend)
        except (UnsupportedOp, WorkerEnded):
            pass
    return compile_graph(graph, backend, strict=True)


def compared_program(graph: Graph, backend: str, found: Verification) -> Program:
    """A program for comparing a graph with its source: a default session of its file, if it loads.

    Otherwise the backend's own session for a graph without a file, or numpy, with a note, for a file that does not load
    within the limits.
    """
    if file_of(graph) is None or not has_default_session(backend):
        return compile_graph(graph, backend)
    try:
        return default_program(graph, backend)
    except (NoAnswer, OutOfMemory) as error:
        found.notes.append(f"not compared on {backend}: {error.what}; {error.do}")
        return compile_graph(graph, "numpy")
    except (UnsupportedOp, ProcessCrashed) as error:
        problem = f"{error.what}: {error.given}" if error.given else error.what
        found.default_session.append(DefaultSession(backend, False, problem))
        found.notes.append(f"not compared on {backend}: {error.what}")
        return compile_graph(graph, "numpy")


def spoiled(
    judge: Judge, graph: Graph, backend: str, feeds: Mapping[str, Any], names: Sequence[str], problem: str
) -> DefaultSession:
    """Failure of a default session, with the option that avoids it."""
    helps = ""
    for option, program in (_part(backend, "remedies") or (lambda graph: ()))(graph):
        if _problem(judge, backend, program, feeds, names) is None:
            helps = option
            break
    return DefaultSession(backend, False, problem, helps, original_too=_is_spoiled(judge, graph, backend, names))


def not_loaded(judge: Judge, graph: Graph, backend: str, names: Sequence[str], error: UnsupportedOp) -> DefaultSession:
    """Failure to load a file in a default session."""
    problem = f"{error.what}: {error.given}" if error.given else error.what
    return DefaultSession(backend, False, problem, original_too=_is_spoiled(judge, graph, backend, names))


def _is_spoiled(judge: Judge, graph: Graph, backend: str, names: Sequence[str]) -> bool:
    """Whether the first model fails in a default session, too."""
    if judge.graph is graph:
        return False
    try:
        program = default_program(judge.graph, backend)
    except (UnsupportedOp, WorkerEnded):
        return True
    return _problem(judge, backend, program, judge.feeds, names) is not None


def _problem(
    judge: Judge, backend: str, program: Program, feeds: Mapping[str, Any], names: Sequence[str]
) -> str | None:
    """Reason why a session fails or differs, or None."""
    try:
        actual = program(feeds)
    except OutOfTime:
        raise
    except TenonnxError as error:
        return str(error.what)
    return worst([judge.judged(name, backend, actual[name]) for name in names])


def worst(found: Sequence[OutputDifference]) -> str | None:
    """The largest difference as text, None if all outputs match."""
    wrong = [each for each in found if not each.equal]
    if not wrong:
        return None
    largest = max(wrong, key=lambda each: each.difference.absolute)
    size = largest.difference
    return f"{largest.name} differs by up to {size.absolute:.3g} ({size.relative:.3g} relative)"
