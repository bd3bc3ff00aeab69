"""Names added by installed packages: functions of ``tenonnx`` and of its namespaces, and methods of ``Graph``.

Each is declared by an entry point of the group ``tenonnx.extensions``, named by its path below ``tenonnx``:

    [project.entry-points."tenonnx.extensions"]
    shrink = "tenonnx_acme.shrink:shrink"                 # tenonnx.shrink
    "Graph.shrink" = "tenonnx_acme.shrink:shrink"         # graph.shrink(...)
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

from tenonnx.errors import PluginError
from tenonnx.registry.discovery import EXTENSIONS, Plugin, cure, left_out, plugins
from tenonnx.registry.hints import provider

_found: dict[str, Any] = {}


def find_extension(name: str) -> Any:
    """Extension of an installed package by name, such as ``"simplify"`` or ``"Graph.run"``; None if missing."""
    if name not in _found:
        declared = plugins(EXTENSIONS, name)
        if not declared:
            return None
        _found[name] = declared[0].load()
    return _found[name]


def extension(name: str) -> Any:
    """Extension of an installed package by name. Raises ``PluginError`` naming a package that provides it."""
    result = find_extension(name)
    if result is None:
        what, do = missing(name)
        raise PluginError(what or f"no installed package adds tenonnx.{name}", do=do)
    return result


def extensions() -> dict[str, Plugin]:
    """The names that installed packages add, without imports."""
    return {plugin.name: plugin for plugin in plugins(EXTENSIONS)}


def missing(name: str) -> tuple[str, str]:
    """The package that provides a missing name, and advice; empty if no package is known."""
    package = provider(EXTENSIONS, name)
    if package is None:
        return "", ""
    what, do = f"tenonnx.{name} is in {package}", cure([package])
    if any(plugin.distribution == package for plugin in left_out(EXTENSIONS)):
        return f"{what}, which TENONNX_PLUGINS leaves out", do
    if find_spec(package.replace("-", "_")) is not None:
        return f"{what}, whose entry points are out of date", f"install {package} again"
    return f"{what}, which is not installed", do


def html_of(thing: Any) -> str | None:
    """HTML of ``thing`` for a notebook; None without a package that renders it."""
    to_html = find_extension("tools.to_html")
    return None if to_html is None else to_html(thing)
