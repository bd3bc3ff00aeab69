"""``load``: dispatch to a front end by the type of the source."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, BinaryIO, Protocol

from tenonnx.errors import InvalidCall, PluginError
from tenonnx.formats.files import check_readable
from tenonnx.formats.sniff import suffix_of_contents
from tenonnx.graph.graph import Graph
from tenonnx.registry.discovery import Plugin, check_takes, cure, plugins
from tenonnx.registry.extensions import extension
from tenonnx.registry.hints import provider
from tenonnx.registry.registry import Registry, default_registry

if TYPE_CHECKING:
    import onnx

    Source = str | os.PathLike[str] | bytes | BinaryIO | onnx.ModelProto

#: Entry-point group of front ends, which read formats other than ONNX. A plugin's name is the suffix of a file or
#: folder without its dot, the name of a file in a folder, or the Python package that defines an object's class or a
#: base class of it; ``function`` is for callables of no known package.
FRONTENDS = "tenonnx.frontends"

#: Entry-point group of import rules.
RULES = "tenonnx.rules"

#: A user's rule for one import: a function of the node and its inputs that returns the replacements of its outputs, or
#: None to decline.
UserRule = Callable[..., Any]


class Frontend(Protocol):
    """Interface of a plugin of the group ``tenonnx.frontends``: a module or an object."""

    def read(self, source: Any, *examples: Any, registry: Registry | None, **options: Any) -> Graph:
        """Import ``source``; the examples and options are those of ``load``.

        An optional function ``verifier`` with the same arguments may return a function ``(graph, atol, rtol)`` that
        compares a graph with the source and returns a ``Verification``. ``read`` is then called with ``verify=False``.
        The optional attribute ``for_files`` holds default options for sources that are converted at once.
        """
        ...


def load(
    source: Source | Any,
    *examples: Any,
    base_dir: str | os.PathLike[str] | None = None,
    strict: bool = False,
    mapped: bool = True,
    rules: Mapping[str, UserRule] | Sequence[Any] | ModuleType | None = None,
    input_shapes: Mapping[str, Sequence[int | str | None]] | None = None,
    registry: Registry | None = None,
    training_state: bool = True,
    **options: Any,
) -> Graph:
    """Load a model from a path, bytes, a binary file, a ``ModelProto``, or anything that an installed front end reads.

    ``base_dir`` is the folder of external data, by default that of the file. ``strict`` refuses ops that no installed
    package provides. External data and native files are memory-``mapped``, or else read on first use: turn mapping off
    where others may truncate the files, since accessing a truncated mapped file kills the process (SIGBUS). ``rules``
    have priority over those of all packages: a mapping from op types (``"Gelu"``, ``"com.microsoft::Gelu"``) or node
    names to functions of the node and its inputs, which return the replacements of the outputs or None to decline; or
    import rules in a list or module. Rules of installed packages (``tenonnx.rules``) follow. With ``training_state``
    False optimizer state is left out, even if the file does not mark it: variables that no node reads and that are
    named after a parameter (``w__adam_m``). ``input_shapes`` are dims of inputs, as for ``fix_shapes``. ``examples``
    are sample inputs with which a front end traces the source, ``options`` are its own. Raises ``InvalidModel`` for a
    broken file, ``UnsafePath`` for external data outside the folder, ``UnsupportedOp`` for ops that cannot be imported,
    ``InvalidCall`` for a source that no front end reads, and for examples or options that it does not accept.
    """
    graph = _read(source, examples, base_dir, mapped, registry, options)
    if graph.registry is None:
        graph.registry = registry or default_registry()
    if not training_state:
        from tenonnx.formats.onnx.training import drop_training_state

        drop_training_state(graph)
    frontend = _frontend(_names(source))
    if rules:
        graph = extension("extend.rules.apply_rules")(graph, rules, strict=True, frontend=frontend)
    if plugins(RULES):
        graph = extension("extend.rules.apply_installed_rules")(graph, frontend)
    if rules or frontend not in _BUILT_IN:  # local functions and rules may call ops of any domain
        from tenonnx.transforms.target import undeclared_opsets

        graph.opsets |= undeclared_opsets(graph)
    if input_shapes:
        from tenonnx.transforms.dims import fix_shapes

        graph = fix_shapes(graph, input_shapes)
    if strict:
        from tenonnx.transforms.decompose import refuse_opaque

        refuse_opaque(graph, "loaded strictly")
    return graph


def _read(
    source: Any,
    examples: tuple[Any, ...],
    base_dir: str | os.PathLike[str] | None,
    mapped: bool,
    registry: Registry | None,
    options: dict[str, Any],
) -> Graph:
    names = _names(source)
    if isinstance(source, str | os.PathLike):
        check_readable(source)
    if not _BUILT_IN.intersection(names):
        plugin = _plugin(names)
        if plugin is not None:
            given = options if base_dir is None else {**options, "base_dir": base_dir}
            return _read_by(plugin, source, examples, registry, given)
        is_path = isinstance(source, str | os.PathLike)
        if not is_path or (Path(source).exists() and any(provider(FRONTENDS, name) for name in names)):
            raise _no_reader_error(source, names)
    if examples or options.keys() - {"trust"}:  # nothing in these files is executed
        raise InvalidCall(
            "examples or unknown options were given for a model file",
            given=", ".join([*(["examples"] if examples else []), *options]),
            available="base_dir, strict, mapped, rules, registry, training_state",
        )
    if "safetensors" in names:
        from tenonnx.formats import native

        return native.read(source, base_dir, registry, mapped=mapped)
    from tenonnx.formats.onnx import reader as onnx_reader

    return onnx_reader.read(source, base_dir, registry, mapped=mapped)


def load_and_verifier(source: Any, *examples: Any, **options: Any) -> tuple[Graph, Callable[..., Any] | None]:
    """``load`` for a file, without verification, and the front end's function to compare with the source, if any."""
    plugin = _plugin(_names(source))
    make = None if plugin is None else getattr(plugin.load(), "verifier", None)
    options = {**({} if plugin is None else getattr(plugin.load(), "for_files", {})), **options}
    if make is None or options.get("input_shapes"):  # then the graph's inputs differ from those of the source
        return load(source, *examples, **options), None
    graph = load(source, *examples, verify=False, **options)
    return graph, make(source, *examples, **{name: each for name, each in options.items() if name != "rules"})


def _frontend(names: list[str]) -> str:
    """Name of the front end that reads a source, for import rules."""
    plugin = None if _BUILT_IN.intersection(names) else _plugin(names)
    return plugin.name if plugin is not None else "safetensors" if "safetensors" in names else "onnx"


def _plugin(names: list[str]) -> Plugin | None:
    return next((plugin for name in names for plugin in plugins(FRONTENDS) if plugin.name == name), None)


def is_onnx_file(path: str | os.PathLike[str]) -> bool:
    """Whether ``load`` reads a path as an ONNX file, not as safetensors or by a front end."""
    names = _names(path)
    read_otherwise = "safetensors" in names or any(plugin.name in names for plugin in plugins(FRONTENDS))
    return "onnx" in names or not read_otherwise


#: Formats that are read without a plugin.
_BUILT_IN = frozenset({"onnx", "safetensors"})


def _names(source: Any) -> list[str]:
    """Possible names of a front end for a source, the most specific first."""
    if isinstance(source, str | os.PathLike):
        path = Path(source)
        inside: list[str] = []
        with contextlib.suppress(OSError, ValueError):  # the reader reports errors of the path
            inside = sorted(entry.name for entry in path.iterdir()) if path.is_dir() else []
        suffix = suffix_of_contents(path) if path.is_file() else ""
        known = suffix if suffix == "onnx" or provider(FRONTENDS, suffix) or _plugin([suffix]) else ""
        return [*([known] if known else []), path.suffix.lower().removeprefix("."), *inside]
    if isinstance(source, bytes | bytearray | memoryview) or hasattr(source, "read"):
        return ["onnx"]
    packages = dict.fromkeys(kind.__module__.split(".")[0] for kind in type(source).__mro__)
    names = [name for name in packages if name != "onnx" or hasattr(source, "graph")]
    is_plain = callable(source) and not any(provider(FRONTENDS, name) for name in names)
    return [*names, *(["function"] if is_plain else [])]


def _no_reader_error(source: Any, names: list[str]) -> InvalidCall:
    """The error for an object or path without a front end; it names the package that provides one."""
    missing = [package for name in names if (package := provider(FRONTENDS, name)) is not None]
    return InvalidCall(
        "cannot load this: neither ONNX (a path, bytes, a binary file or a ModelProto), nor what an installed "
        "front end reads",
        given=repr(os.fspath(source))
        if isinstance(source, str | os.PathLike)
        else f"{type(source).__module__}.{type(source).__qualname__}".removeprefix("builtins."),
        available=", ".join(f"{plugin.name} by {plugin.source}" for plugin in plugins(FRONTENDS)) or "no front end",
        do=cure(missing) if missing else "",
    )


def _read_by(
    plugin: Plugin, source: Any, examples: tuple[Any, ...], registry: Registry | None, options: dict[str, Any]
) -> Graph:
    """Read a source with the front end of a plugin; errors name the plugin and the source."""
    read: Callable[..., Graph] = plugin.load().read
    name = f'"{os.fspath(source)}"' if isinstance(source, str | os.PathLike) else type(source).__qualname__
    what = f"the front end of {plugin.source} does not take these examples and options"
    check_takes(what, read, source, *examples, registry=registry, **options)
    with plugin.running(f"could not read {name}"):
        graph = read(source, *examples, registry=registry, **options)
    if not isinstance(graph, Graph):
        raise PluginError(f"the front end of {plugin.source} returned no graph", given=repr(graph)[:200])
    return graph
