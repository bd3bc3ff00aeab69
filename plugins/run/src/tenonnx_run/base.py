"""The backend protocol and the installed backends."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from importlib.util import find_spec
from typing import Any, Protocol

from tenonnx.errors import InvalidCall, did_you_mean
from tenonnx.graph.graph import Graph
from tenonnx.graph.program import Program
from tenonnx.op.op import Op
from tenonnx.registry.discovery import Plugin, cure, plugins
from tenonnx.registry.hints import provider


class Backend(Protocol):
    """Interface of a plugin of the group ``tenonnx.backends``: a module or an object.

    Importing the plugin must not import the runtime; ``compile`` imports it. ``accepts`` reads the optional attributes.
    """

    #: Rank: ``auto`` takes the highest-ranked installed backend that accepts the graph.
    speed: int

    #: Optional: the Python module of the runtime. If it is not installed, ``auto`` skips the backend.
    #: runtime: str

    #: Optional: ops that ``auto`` leaves to other backends, as "Name" or "domain::Name".
    #: unsupported: Collection[str]

    #: Optional: False if ``auto`` leaves graphs with state, such as training steps, to other backends.
    #: trains: bool

    #: Optional: True if the runtime may have kernels of ops that no package defines.
    #: takes_opaque: bool

    #: Optional: ``compilations() -> int``, the number of shape-specific compilations in this process.

    def compile(
        self, graph: Graph, *, state: Mapping[str, str] | None = None, strict: bool = False, **options: Any
    ) -> Program:
        """Compile ``graph``.

        Raises ``UnsupportedOp`` if the backend cannot run it; unless ``strict``, it may return ``fall_back(graph,
        ...)``.
        """
        ...


def backends() -> dict[str, Plugin]:
    """Installed backends by name, without importing them. Numpy is always available and not listed."""
    return {plugin.name: plugin for plugin in plugins("tenonnx.backends")}


def load_backend(name: str) -> Backend:
    """An installed backend other than numpy's.

    Raises ``InvalidCall`` for an unknown name, ``PluginError`` if the plugin cannot be imported.
    """
    installed = backends()
    if name not in installed:
        package = provider("tenonnx.backends", name)
        raise InvalidCall(
            f'no backend "{name}" is installed',
            available=", ".join(["numpy", *installed]),
            do=cure([package]) if package else did_you_mean(name, ["numpy", *installed]) or "choose one of these",
        )
    module: Backend = installed[name].load()
    return module


def is_available(backend: Backend) -> bool:
    """Whether the runtime of a backend is installed, without importing it."""
    runtime = getattr(backend, "runtime", None)
    return runtime is None or find_spec(runtime) is not None


def has_opaque(graph: Graph) -> bool:
    """Whether a graph has ops that no installed package defines."""
    return any(not isinstance(node.op, Op) for node in graph.walk())


def takes_opaque(backend: Backend) -> bool:
    """Whether a backend may have kernels for ops that no installed package defines."""
    return bool(getattr(backend, "takes_opaque", False))


def accepts(backend: Backend, graph: Graph, *, trains: bool = False) -> bool:
    """Whether a backend claims to support a graph, by its ops and by whether it keeps state."""
    if trains and not getattr(backend, "trains", True):
        return False
    unsupported: Collection[str] = getattr(backend, "unsupported", ())
    opaque = takes_opaque(backend)
    return not any(
        (not opaque and not isinstance(node.op, Op))
        or node.op_type in unsupported
        or f"{node.domain}::{node.op_type}" in unsupported
        for node in graph.walk()
    )
