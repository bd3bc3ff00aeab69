"""Backend registration: the rank for ``auto``, and functions that import onnxruntime lazily."""

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

#: The runtime supports ops unknown to all packages: its own, and those of libraries in ``SessionOptions``.
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
    """Compile ``graph`` for onnxruntime.

    ``provider`` is an execution provider, such as ``"CUDAExecutionProvider"`` (or ``"cuda"``, or ``("cuda",
    {"device_id": 1})``): calls are bound to its device, state stays there, and the CPU runs nodes without a kernel.
    ``providers`` is a list in order of preference, by default only the CPU. ``session_options`` is a ``SessionOptions``
    (large initializers are added to it) or its fields by name. ``optimization`` is "none", "basic", "extended" or
    "all", the default unless the graph is huge. ``threads`` is the number of threads per op. A graph or call that the
    runtime rejects runs on numpy with a ``FallbackWarning``. If ``strict``, it raises ``UnsupportedOp`` or
    ``InvalidCall`` instead. Raises ``InvalidCall`` for wrong options.
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
    """Start the worker process for default sessions, which imports the runtime in the background."""
    from tenonnx_onnxruntime.plain import process

    process().start()


def plain(graph: Graph) -> Program:
    """The model file of a graph in a default session, as users run it, in a worker process.

    Raises ``UnsupportedOp`` if it does not load, and ``WorkerEnded`` if the runtime crashes on it or exceeds the limits
    ``seconds`` or ``memory``.
    """
    from tenonnx_onnxruntime.plain import FileProgram

    return FileProgram(graph)


def differs_by_default(graph: Graph) -> bool:
    """Whether the options of ``compile`` may change results compared with a default session."""
    from tenonnx_onnxruntime.plain import differs_by_default

    return differs_by_default(graph)


def remedies(graph: Graph) -> Iterator[tuple[str, Program]]:
    """The model file in sessions with one changed option each, with a description of the option."""
    from tenonnx_onnxruntime.plain import remedies

    return remedies(graph)


def node_seconds(graph: Graph, feeds: Mapping[str, Any], calls: int) -> list[dict[str, float]]:
    """The seconds of each node of the optimized graph, by name, for each call, from the runtime's profiler."""
    from tenonnx_onnxruntime.profiling import node_seconds

    return node_seconds(graph, feeds, calls)
