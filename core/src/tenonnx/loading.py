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

#: Plugins of this entry-point group read what is no ONNX file. The name says what: the suffix of a file or folder
#: without its dot, a file in a folder, or the Python package that an object's class, or a base of it, comes from;
#: ``function`` is what can be called and is of no package that is known.
FRONTENDS = "tenonnx.frontends"

#: Plugins of this entry-point group are import rules.
RULES = "tenonnx.rules"

#: A rule of the user for one graph: the node and its inputs to what replaces its outputs, or None to go on.
UserRule = Callable[..., Any]


class Frontend(Protocol):
    """Interface of a plugin of the group ``tenonnx.frontends``: a module or an object."""

    def read(self, source: Any, *examples: Any, registry: Registry | None, **options: Any) -> Graph:
        """The graph of ``source``; examples and options are those that ``load`` was given.

        Beside it ``verifier``, called likewise, may give what compares a graph with the source itself: a function of
        the graph, ``atol`` and ``rtol`` to a ``Verification``. Then ``read`` takes ``verify=False``. ``for_files`` may
        be options with which it reads what is converted at once, where these are not given.
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
    """Read a model: a path, bytes, a binary file or a ``ModelProto``, or what an installed front end reads.

    ``base_dir`` is the folder of external data, for a path that of the file. ``strict`` refuses ops that no installed
    package provides. External data and native files are ``mapped`` into memory, or else read on first use: a program
    should prefer that where others may cut files short while they are in use, as touching what is gone of a mapped file
    ends the process (SIGBUS). ``rules`` beat all packages: keys are op types (``"Gelu"``, ``"com.microsoft::Gelu"``) or
    node names, values functions of the node and its inputs that return what replaces the outputs, or None to go on; or
    import rules, in a list or module. Then those that installed packages offer (``tenonnx.rules``) are asked.
    ``training_state`` False leaves out what an optimizer needs to go on, also where the file does not announce it:
    variables that no node reads, named as what is kept of another (``w__adam_m``), which need not be there.
    ``input_shapes`` are dims of inputs, as ``fix_shapes`` takes them.
    ``examples`` are inputs from which a front end learns what the source computes, ``options`` its own.
    Raises ``InvalidModel`` for a broken file, ``UnsafePath`` for external data outside the folder, ``UnsupportedOp``,
    ``InvalidCall`` for a source that nobody reads, and for examples or options that its reader does not take.
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
    if rules or frontend not in _BUILT_IN:  # forms and rules may call ops of any domain
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
            raise _unread(source, names)
    if examples or options.keys() - {"trust"}:  # nothing of these files is run
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
    """``load`` for a file, unverified, and what compares a graph with the source, where its front end has that."""
    plugin = _plugin(_names(source))
    make = None if plugin is None else getattr(plugin.load(), "verifier", None)
    options = {**({} if plugin is None else getattr(plugin.load(), "for_files", {})), **options}
    if make is None or options.get("input_shapes"):  # the graph does not take what its source takes
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
    """Whether ``load`` reads a path as an ONNX file, not as a native one or by a front end."""
    names = _names(path)
    read_otherwise = "safetensors" in names or any(plugin.name in names for plugin in plugins(FRONTENDS))
    return "onnx" in names or not read_otherwise


#: What is read without a plugin.
_BUILT_IN = frozenset({"onnx", "safetensors"})


def _names(source: Any) -> list[str]:
    """Possible names of a front end for a source, the most specific first."""
    if isinstance(source, str | os.PathLike):
        path = Path(source)
        inside: list[str] = []
        with contextlib.suppress(OSError, ValueError):  # its reader says what is wrong with a path
            inside = sorted(entry.name for entry in path.iterdir()) if path.is_dir() else []
        told = suffix_of_contents(path) if path.is_file() else ""
        known = told if told == "onnx" or provider(FRONTENDS, told) or _plugin([told]) else ""
        return [*([known] if known else []), path.suffix.lower().removeprefix("."), *inside]
    if isinstance(source, bytes | bytearray | memoryview) or hasattr(source, "read"):
        return ["onnx"]
    packages = dict.fromkeys(kind.__module__.split(".")[0] for kind in type(source).__mro__)
    names = [name for name in packages if name != "onnx" or hasattr(source, "graph")]
    is_plain = callable(source) and not any(provider(FRONTENDS, name) for name in names)
    return [*names, *(["function"] if is_plain else [])]


def _unread(source: Any, names: list[str]) -> InvalidCall:
    """The error for an object or path that nobody reads, with the package that would."""
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
    """Read a source by the front end of a plugin; errors name the plugin and the source."""
    read: Callable[..., Graph] = plugin.load().read
    name = f'"{os.fspath(source)}"' if isinstance(source, str | os.PathLike) else type(source).__qualname__
    what = f"the front end of {plugin.source} does not take these examples and options"
    check_takes(what, read, source, *examples, registry=registry, **options)
    with plugin.running(f"could not read {name}"):
        graph = read(source, *examples, registry=registry, **options)
    if not isinstance(graph, Graph):
        raise PluginError(f"the front end of {plugin.source} returned no graph", given=repr(graph)[:200])
    return graph
