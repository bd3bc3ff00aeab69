"""Loading: the format is chosen by what the source is."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from tenonnx.errors import InvalidCall, InvalidModel, TenonnxError
from tenonnx.graph.graph import Graph
from tenonnx.registry.discovery import Plugin, plugins
from tenonnx.registry.registry import Registry, default_registry

if TYPE_CHECKING:
    import onnx

    Source = str | os.PathLike[str] | bytes | BinaryIO | onnx.ModelProto

#: A rule of the user for one graph: the node and its inputs to what replaces its outputs, or None to go on.
UserRule = Callable[..., Any]


def load(
    source: Source,
    base_dir: str | os.PathLike[str] | None = None,
    strict: bool = False,
    *,
    mapped: bool = True,
    rules: Mapping[str, UserRule] | None = None,
    registry: Registry | None = None,
) -> Graph:
    """Read a model: a path, bytes, a binary file or a ``ModelProto``.

    ``base_dir`` is the folder of external data, for a path that of the file. ``strict`` refuses ops that no installed
    package provides. External data and native files are ``mapped`` into memory, or else read on first use: a program
    should prefer that where others may cut files short while they are in use, as touching what is gone of a mapped file
    ends the process (SIGBUS). ``rules`` beat all packages: keys are op types (``"Gelu"``, ``"com.microsoft::Gelu"``) or
    node names, values functions of the node and its inputs that return what replaces the outputs, or None to go on.
    Raises ``InvalidModel`` for a broken file, ``UnsafePath`` for external data outside the folder, ``UnsupportedOp``.
    """
    graph = _reader(source, mapped)(source, base_dir, registry)
    if graph.registry is None:
        graph.registry = registry or default_registry()
    if rules:
        from tenonnx.transforms.user_rules import apply_rules

        graph = apply_rules(graph, rules, strict=True)
    if strict:
        from tenonnx.transforms.decompose import refuse_opaque

        refuse_opaque(graph, "loaded strictly")
    return graph


def _reader(source: Any, mapped: bool) -> Callable[..., Graph]:
    if isinstance(source, str | os.PathLike):
        suffix = Path(source).suffix.lower()
        if suffix == ".safetensors":
            from tenonnx.formats import native

            return partial(native.read, mapped=mapped)
        for plugin in plugins("tenonnx.formats"):
            if plugin.name == suffix.lstrip("."):
                return _read_by(plugin)
    elif (
        not isinstance(source, bytes | bytearray | memoryview)
        and not hasattr(source, "read")
        and not hasattr(source, "graph")
    ):
        raise InvalidCall("a model must be a path, bytes, a binary file or a ModelProto", given=type(source).__name__)
    from tenonnx.formats.onnx import reader as onnx_reader

    return partial(onnx_reader.read, mapped=mapped)


def _read_by(plugin: Plugin) -> Callable[..., Graph]:
    """The reader of a plugin; what it fails with names the plugin and the file."""
    reader: Callable[..., Graph] = plugin.load().read

    def read(source: Any, base_dir: Any, registry: Registry | None) -> Graph:
        try:
            return reader(source, base_dir, registry)
        except TenonnxError:
            raise
        except Exception as error:
            raise InvalidModel(
                f'"{os.fspath(source)}" could not be read by plugin "{plugin.name}" of {plugin.source}',
                given=f"{type(error).__name__}: {error}",
            ) from error

    return read
