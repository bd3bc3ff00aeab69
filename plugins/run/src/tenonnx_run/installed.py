"""Compilation by an installed backend, and checks of its programs."""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping
from typing import Any

from tenonnx.errors import PluginError, installing
from tenonnx.graph.graph import Graph
from tenonnx.graph.program import Program
from tenonnx.registry.discovery import Plugin, check_takes
from tenonnx.transforms.decompose import refuse_opaque
from tenonnx_run.base import Backend, backends, has_opaque, is_available, load_backend, takes_opaque
from tenonnx_run.wrapped import WrappedProgram


class CheckedProgram(WrappedProgram):
    """A third party's program. Raises ``PluginError`` if a call fails or the output names are wrong."""

    def __init__(self, program: Program, graph: Graph, plugin: Plugin) -> None:
        super().__init__(program)
        self._plugin = plugin
        self._names = sorted(value.name for value in graph.outputs)

    @property
    def backend(self) -> str:
        return self._plugin.name

    def __call__(self, feeds: Mapping[str, Any]) -> dict[str, Any]:
        with self._plugin.running("cannot run a graph"):
            results = self._program(feeds)
        if not isinstance(results, Mapping) or sorted(results) != self._names:
            found = sorted(results) if isinstance(results, Mapping) else type(results).__name__
            raise PluginError(
                f'plugin "{self._plugin.name}" of {self._plugin.source} returned the wrong outputs',
                given=f"{found}; the graph has {self._names}",
                do=f"leave it out with TENONNX_PLUGINS=-{self._plugin.distribution}",
            )
        return results


def compile_by(name: str, graph: Graph, strict: bool, options: Mapping[str, Any]) -> Program:
    """Compile a graph with the backend of that name. Raises ``InvalidCall`` if it is not installed."""
    module, plugin = load_backend(name), backends()[name]
    if not is_available(module):
        runtime = getattr(module, "runtime", "")
        raise PluginError(f"cannot run on the backend {name}: {runtime} is not installed", do=installing(runtime))
    is_opaque = has_opaque(graph)
    if is_opaque and not takes_opaque(module):
        refuse_opaque(graph, f"run on {name}")
    with plugin.running("cannot compile a graph"):
        return program_of(plugin, module, graph, strict or is_opaque, options)


def program_of(plugin: Plugin, backend: Backend, graph: Graph, strict: bool, options: Mapping[str, Any]) -> Program:
    """Compile a graph with a backend. Raises ``TypeError`` if it does not return a program."""
    what = f"the backend {plugin.name} does not take these options"
    check_takes(what, backend.compile, graph, strict=strict, **options)
    program = backend.compile(graph, strict=strict, **options)
    if not callable(program):
        raise TypeError(f"compile returned {type(program).__name__}, which cannot be called")
    if not isinstance(program.state, MutableMapping) or not isinstance(program.backend, str):
        raise TypeError(f"compile returned a {type(program).__name__} whose state or backend is of another type")
    return program if plugin.is_ours else CheckedProgram(program, graph, plugin)
