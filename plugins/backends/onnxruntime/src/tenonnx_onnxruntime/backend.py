"""The backend: its rank, the rule by which ``auto`` chooses it, and functions that import onnxruntime when called."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import onnxruntime

    from tenonnx.extend import Graph
    from tenonnx.extend.backends import Program
    from tenonnx_onnxruntime.providers import Provider

__all__ = [
    "compile",
    "differs_by_default",
    "node_seconds",
    "plain",
    "remedies",
    "runtime",
    "speed",
    "start_default_sessions",
    "takes_opaque",
]

speed = 100

runtime = "onnxruntime"

#: The runtime has ops that no package gives a meaning to: its own, and those of libraries in ``SessionOptions``.
takes_opaque = True


def compile(
    graph: Graph,
    *,
    state: Mapping[str, str] | None = None,
    provider: Provider | None = None,
    providers: Sequence[Provider] | None = None,
    session_options: onnxruntime.SessionOptions | Mapping[str, Any] | None = None,
    optimization: str | None = None,
    threads: int | None = None,
    strict: bool = False,
) -> Program:
    """Make ``graph`` ready to run on onnxruntime.

    ``provider`` is one execution provider of the runtime, such as ``"CUDAExecutionProvider"`` (or ``"cuda"``, or
    ``("cuda", {"device_id": 1})``): calls are bound to its device, on which state stays, and the CPU computes what it
    has no kernel for. ``providers`` are several in order, the CPU if None; ``session_options`` a ``SessionOptions`` (to
    which large initializers are added) or its fields by name; ``optimization`` one of "none", "basic", "extended" and
    "all", which is the default unless the graph is huge; ``threads`` how many an op may use. A graph that the runtime
    cannot run goes to numpy with a ``FallbackWarning``, and so does a call that it refuses. When ``strict`` these raise
    ``UnsupportedOp`` and ``InvalidCall``. Raises ``InvalidCall`` for wrong options.
    """
    from tenonnx_onnxruntime.compiling import compile_graph

    return compile_graph(
        graph,
        state=state,
        provider=provider,
        providers=providers,
        session_options=session_options,
        optimization=optimization,
        threads=threads,
        strict=strict,
    )


def start_default_sessions() -> None:
    """Start the worker process of default sessions, which imports the runtime meanwhile."""
    from tenonnx_onnxruntime.plain import process

    process().start()


def plain(graph: Graph) -> Program:
    """The file of a graph in a default session, in a worker process, as users run it.

    Raises ``UnsupportedOp`` where it does not load, and ``WorkerEnded`` where the runtime crashes on it, or takes more
    than the limits ``seconds`` and ``memory``.
    """
    from tenonnx_onnxruntime.plain import FileProgram

    return FileProgram(graph)


def differs_by_default(graph: Graph) -> bool:
    """Whether the options of ``compile`` may change what a default session gives."""
    from tenonnx_onnxruntime.plain import differs_by_default

    return differs_by_default(graph)


def remedies(graph: Graph) -> Iterator[tuple[str, Program]]:
    """The file in sessions with one option that is not the default, each with that option in words."""
    from tenonnx_onnxruntime.plain import remedies

    return remedies(graph)


def node_seconds(graph: Graph, feeds: Mapping[str, Any], calls: int) -> list[dict[str, float]]:
    """The seconds of each node of the runtime's graph, by its name, in each of so many calls, by its own profiler."""
    from tenonnx_onnxruntime.profiling import node_seconds

    return node_seconds(graph, feeds, calls)
