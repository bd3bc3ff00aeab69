"""What a package of a backend provides, and finding those that are installed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from tenonnx.errors import InvalidCall
from tenonnx.graph.graph import Graph
from tenonnx.graph.program import Program
from tenonnx.registry.discovery import Plugin, cure, plugins
from tenonnx.registry.hints import provider


class Backend(Protocol):
    """What a plugin of the group ``tenonnx.backends`` provides, as a module or an object."""

    #: ``auto`` tries the larger first. Of several that can run a graph, it takes the one that is measured to be faster.
    speed: int

    #: Optional: the name of a library that ``compile`` imports and that takes seconds. ``auto`` then asks for the
    #: backend where that is imported already, where nothing else runs the graph, and for trainings that repay it.
    #: library: str

    #: Optional: ``compilations() -> int``, how often it has compiled for sizes of feeds in this process.

    def compile(
        self, graph: Graph, *, state: Mapping[str, str] | None = None, strict: bool = False, **options: Any
    ) -> Program:
        """Make ``graph`` ready to run.

        Raises ``UnsupportedOp`` when it cannot; unless ``strict``, it may give ``fall_back(graph, ...)`` instead.
        """
        ...


def backends() -> dict[str, Plugin]:
    """The installed backends by name, without importing them; the numpy backend is always there and not listed."""
    return {plugin.name: plugin for plugin in plugins("tenonnx.backends")}


def load_backend(name: str) -> Backend:
    """An installed backend other than numpy's.

    Raises ``InvalidCall`` where there is none of this name, ``PluginError`` where it cannot be imported.
    """
    installed = backends()
    if name not in installed:
        package = provider("tenonnx.backends", name)
        raise InvalidCall(
            f'no backend "{name}" is installed',
            available=", ".join(["numpy", *installed]),
            do=cure([package]) if package else "choose one of these",
        )
    module: Backend = installed[name].load()
    return module
