"""Discovery of installed plugins by their entry points, without imports."""

from __future__ import annotations

import contextlib
import importlib.util
import inspect
import os
import re
import sys
import traceback
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cache, partial, reduce
from pathlib import Path
from typing import Any, NamedTuple

from tenonnx.errors import InvalidCall, PluginError, PluginWarning, TenonnxError, installing
from tenonnx.graph.gc_paused import gc_paused
from tenonnx.graph.lazy_methods import lazy_import
from tenonnx.registry.hints import is_ours, names_of, names_of_core, provider

#: Version of the plugin interface (``tenonnx.extend``). A package declares ``api = 1`` and is refused if it needs a
#: newer version.
API = 1


def _is_backend(value: Any) -> bool:
    return isinstance(getattr(value, "speed", None), int | float) and callable(getattr(value, "compile", None))


def _are_rules(value: Any) -> bool:
    # imported lazily with the package that applies rules
    rules_of = lazy_import("find_extension")("extend.rules.rules_of")
    try:
        return rules_of is None or bool(rules_of(value))
    except InvalidCall:
        return False


#: Entry-point group of names that packages add to ``tenonnx``, see ``registry/extensions.py``.
EXTENSIONS = "tenonnx.extensions"


class EntryPointGroup(NamedTuple):
    """One entry-point group: the expected type of its values, and its reserved names.

    With ``unique`` names, each name identifies one plugin.
    """

    needs: str = "a module"
    fits: Callable[[Any], bool] = lambda value: True
    unique: bool = False
    reserved: frozenset[str] = frozenset()


#: The entry-point groups. Plugins of ops are named by the domain that they serve, others by what they provide.
GROUPS: Mapping[str, EntryPointGroup] = {
    "tenonnx.ops": EntryPointGroup(),
    "tenonnx.backends": EntryPointGroup(
        "an object with a number speed and a function compile", _is_backend, True, frozenset({"auto", "numpy"})
    ),
    "tenonnx.frontends": EntryPointGroup(
        "an object with a function read",
        lambda value: callable(getattr(value, "read", None)),
        True,
        frozenset({"onnx", "safetensors"}),
    ),
    "tenonnx.formats": EntryPointGroup(
        "an object with functions write and open",
        lambda value: callable(getattr(value, "write", None)) and callable(getattr(value, "open", None)),
        True,
        frozenset({"onnx", "safetensors"}),
    ),
    "tenonnx.layouts": EntryPointGroup(
        "an object with a function files or export",
        lambda value: callable(getattr(value, "files", getattr(value, "export", None))),
        True,
    ),
    "tenonnx.conformance": EntryPointGroup(),
    "tenonnx.commands": EntryPointGroup("a click command, or a function that adds one to a group", callable, True),
    "tenonnx.frameworks": EntryPointGroup(
        "a module with runtime, form and run", lambda value: callable(getattr(value, "run", None)), True
    ),
    "tenonnx.targets": EntryPointGroup("a package that holds *.toml files", lambda value: hasattr(value, "__path__")),
    "tenonnx.lowerings": EntryPointGroup("a module with LOWERINGS", lambda value: hasattr(value, "LOWERINGS")),
    "tenonnx.transforms": EntryPointGroup(
        "a function from a graph to a graph", callable, True, names_of("tenonnx.options")
    ),
    "tenonnx.rules": EntryPointGroup("import rules, or a module that holds some", _are_rules),
    "tenonnx.torch_ops": EntryPointGroup(
        "a mapping from operators of PyTorch to functions", lambda value: isinstance(value, Mapping)
    ),
    "tenonnx.tensorflow_ops": EntryPointGroup(),
    "tenonnx.estimators": EntryPointGroup(),
    EXTENSIONS: EntryPointGroup(unique=True, reserved=names_of_core()),
    "tenonnx.hooks": EntryPointGroup(
        "a function of a ModelProto, or an object with post_process",
        lambda value: callable(value) or callable(getattr(value, "post_process", None)),
        True,
    ),
}


class Plugin(NamedTuple):
    """One entry point, identified by distribution and name, since two distributions may use the same name."""

    name: str
    value: str
    group: str
    distribution: str
    version: str

    @property
    def domain(self) -> str:
        return self.name

    @property
    def source(self) -> str:
        return f"{self.distribution} {self.version}"

    @property
    def title(self) -> str:
        return f"{self.distribution}:{self.name}"

    @property
    def package(self) -> str:
        """The top-level Python package of the entry point's module."""
        return self.value.partition(":")[0].partition(".")[0]

    @property
    def rank(self) -> tuple[bool, str]:
        """Precedence among packages that provide the same name: the project's own, then in alphabetical order."""
        return not self.is_ours, normalized(self.distribution)

    @property
    def is_ours(self) -> bool:
        """Whether the project itself publishes it. Another distribution could have the name, but not the module."""
        return is_ours(self.distribution) and self.package == self.distribution.replace("-", "_")

    def holds(self, name: str) -> bool:
        """Whether it comes from the distribution that owns a name of its group."""
        return self.is_ours and self.distribution == provider(self.group, name)

    def load(self) -> Any:
        """Import the object of the entry point.

        Raises ``PluginError`` with the name of the distribution for any error of the import, and if the object does not
        fit its group.
        """
        self._check_api()  # before the import, which may fail on names that only a newer tenonnx has
        module, _, path = self.value.partition(":")
        value = self._imported(lambda: reduce(getattr, filter(None, path.split(".")), importlib.import_module(module)))
        self._check_api()
        group = GROUPS[self.group]
        if not group.fits(value):
            raise PluginError(
                f'plugin "{self.name}" of {self.source} is not {group.needs}',
                given=f"{self.value}, {type(value).__name__} {getattr(value, '__name__', '')}".rstrip(),
                do=f"correct {getattr(value, '__file__', self.value)}",
            )
        return value

    def import_module(self, name: str) -> None:
        """Import a module of the package. Raises ``PluginError`` as ``load`` does."""
        load = partial(importlib.import_module, name)
        load() if name in sys.modules else self._imported(load)

    def _imported(self, load: Callable[[], Any]) -> Any:
        token = _being_imported.set(self)
        try:
            with self.running("could not be imported", passing=()), gc_paused():
                return load()
        finally:
            _being_imported.reset(token)

    @contextlib.contextmanager
    def running(self, what: str, passing: tuple[type[Exception], ...] = (TenonnxError,)) -> Iterator[None]:
        """Run code of the package. Raises ``PluginError`` for exceptions and exits, except those in ``passing``.

        The package is otherwise trusted: KeyboardInterrupt, signals and process-wide state are not handled.
        """
        try:
            yield
        except passing:
            raise
        except (Exception, SystemExit) as error:
            raise self.failure(what, error) from error

    def _check_api(self) -> None:
        wanted = self._api()
        if isinstance(wanted, int) and wanted > API:
            raise PluginError(
                f'plugin "{self.name}" of {self.source} is written for a newer API of tenonnx than {API}',
                given=f"api = {wanted}",
                do=f"upgrade tenonnx, or install an older {self.distribution}",
            )

    def _api(self) -> Any:
        """The ``api`` of the package after its import; before that, parsed from its source."""
        package = sys.modules.get(self.package)
        if package is not None:
            return vars(package).get("api", API)  # not getattr, with which a flat namespace would search for the name
        try:
            spec = importlib.util.find_spec(self.package)
            source_of = getattr(None if spec is None else spec.loader, "get_source", None)
            text = source_of(self.package) if source_of is not None else None
        except (ImportError, ValueError, OSError, SyntaxError):
            return API
        line = re.search(r"^api *= *([0-9]+)", text or "", re.MULTILINE)
        return int(line[1]) if line else API

    def failure(self, what: str, error: BaseException) -> PluginError:
        """The error that names this plugin and its line that failed."""
        result = PluginError(
            f'plugin "{self.name}" of {self.source} {what}',
            given=f"{self.value}: {type(error).__name__}: {error}",
            do=f"correct {self._line(error) or self.value}, or reinstall {self.distribution}, "
            f"or leave it out with TENONNX_PLUGINS=-{self.distribution}",
        )
        result.__cause__ = error
        return result

    def _line(self, error: BaseException) -> str:
        if isinstance(error, SyntaxError) and error.filename:
            return f"{error.filename}:{error.lineno}"
        core = str(Path(__file__).parents[1])
        skipped = (core, str(Path(importlib.__file__).parent), contextlib.__file__, "<")
        home, last = self._home(), ""
        cause: BaseException | None = error
        while cause is not None:
            frames = [f for f in traceback.extract_tb(cause.__traceback__) if not f.filename.startswith(skipped)]
            own = [f"{f.filename}:{f.lineno}" for f in frames if home and f.filename.startswith(home)]
            if own:
                return own[-1]
            last = last or "".join(f"{f.filename}:{f.lineno}" for f in frames[-1:])
            cause = cause.__cause__
        return last

    def _home(self) -> str:
        """The folder or file of the entry point's package."""
        try:
            spec = importlib.util.find_spec(self.package)
        except (ImportError, ValueError):
            return ""
        if spec is None or not spec.origin:
            return ""
        return str(Path(spec.origin).parent) if spec.submodule_search_locations else spec.origin


_being_imported: ContextVar[Plugin | None] = ContextVar("tenonnx_plugin", default=None)


def being_imported() -> Plugin | None:
    """The plugin that is being imported in this context, if any."""
    return _being_imported.get()


def normalized(name: str) -> str:
    """The normalized name of a distribution (PEP 503)."""
    return re.sub(r"[-_.]+", "-", name).lower()


def _installed(group: str) -> tuple[Plugin, ...]:
    return tuple(p for p in _everything() if p.group == group)


@cache
def _everything() -> tuple[Plugin, ...]:
    """Installed plugins of all groups by name and rank, from one scan of the environment.

    The result is that of ``importlib.metadata``, whose import (with email and sockets) takes longer than the scan.
    """
    found: dict[tuple[str, ...], Plugin] = {}
    for folder in _metadata_folders():
        text = _contents(folder / "entry_points.txt")
        if "[tenonnx." not in text:
            continue  # skip the metadata of packages without entry points, as parsing it is slow
        distribution, version = _name_and_version(folder)
        for group, name, value in _entry_points(text):
            found.setdefault((distribution, group, name, value), Plugin(name, value, group, distribution, version))
    return tuple(sorted(found.values(), key=lambda plugin: (plugin.name, plugin.rank)))


def _metadata_folders() -> Iterator[Path]:
    """The metadata folders of installed distributions, in the order of ``sys.path``."""
    for folder in dict.fromkeys(map(str, sys.path)):
        with contextlib.suppress(OSError), os.scandir(folder or ".") as entries:
            yield from (Path(entry.path) for entry in entries if entry.name.endswith((".dist-info", ".egg-info")))


def _entry_points(text: str) -> Iterator[tuple[str, str, str]]:
    """Group, name and value of the entry points in the text of ``entry_points.txt``."""
    group = ""
    for line in map(str.strip, text.splitlines()):
        name, is_entry, value = line.partition("=")
        if line.startswith("["):
            group = line.strip("[]")
        elif is_entry and not line.startswith(("#", ";")):
            yield group, name.strip(), value.partition("[")[0].replace(" ", "")  # without extras


def _name_and_version(folder: Path) -> tuple[str, str]:
    """Name and version of a distribution, from the first lines of its metadata; a full parse is slower."""
    text = _contents(folder / "METADATA") or _contents(folder / "PKG-INFO")
    fields = dict(re.findall(r"^(Name|Version): *(.*)$", text.partition("\n\n")[0], re.MULTILINE))
    name, _, version = folder.stem.partition("-")
    return fields.get("Name", name), fields.get("Version", version)


def _contents(path: Path) -> str:
    """The text of a file; empty if it cannot be read."""
    with contextlib.suppress(OSError):
        return path.read_text("utf-8", errors="replace")
    return ""


@dataclass(frozen=True)
class Selection:
    """Parsed ``TENONNX_PLUGINS``: the selected distributions (None for all), and the excluded ones."""

    included: Sequence[str] | None
    without: Sequence[str]

    @classmethod
    def of(cls, text: str | None) -> Selection:
        words = [word.strip() for word in (text or "").split(",") if word.strip()]
        named = [normalized(word) for word in words if not word.startswith("-")]
        without = [normalized(word[1:]) for word in words if word.startswith("-")]
        return cls(None if text is None or (without and not named) else named, without)

    def __contains__(self, plugin: Plugin) -> bool:
        name = normalized(plugin.distribution)
        # the project's own functions are always available unless excluded by name
        always = plugin.group == EXTENSIONS and plugin.is_ours
        return name not in self.without and (self.included is None or always or name in self.included)

    @property
    def unknown(self) -> list[str]:
        """Names that match no installed plugin."""
        names = {*(self.included or ()), *self.without}
        known = {normalized(plugin.distribution) for group in GROUPS if names for plugin in _installed(group)}
        return sorted(names - known)


def check_takes(what: str, function: Callable[..., Any], /, *given: Any, **options: Any) -> None:
    """Raise ``InvalidCall`` if a plugin's function does not accept these arguments."""
    signature = inspect.signature(function)
    try:
        signature.bind(*given, **options)
    except TypeError as error:
        raise InvalidCall(what, given=str(error), available=f"{function.__name__}{signature}") from error


def selection() -> Selection:
    """Selection by the environment: comma-separated distributions; ``-name`` excludes that one, empty all."""
    return Selection.of(os.environ.get("TENONNX_PLUGINS"))


def plugins(group: str, name: str | None = None) -> list[Plugin]:
    """The installed plugins of one entry-point group without excluded and refused ones; the latter raise a warning.

    They are sorted by name, then rank; with ``name`` only those of that name.
    """
    chosen, refused_here = selection(), refused_plugins(group, name)
    if chosen.unknown:
        warn_once(
            f"TENONNX_PLUGINS names {', '.join(chosen.unknown)}, but no plugin of such a distribution is installed"
        )
    for error in refused_here.values():
        warn_once(str(error))
    return [p for p in _named(group, name) if p in chosen and p not in refused_here]


def _named(group: str, name: str | None) -> tuple[Plugin, ...]:
    """The installed plugins of a group, or those of one name."""
    return tuple(p for p in _installed(group) if name in (None, p.name))


def loaded(group: str, name: str | None = None) -> Iterator[tuple[Plugin, Any]]:
    """Import the plugins of a group, or those of one name; yields each with its object. Failures raise a warning."""
    for plugin in plugins(group, name):
        try:
            yield plugin, plugin.load()
        except PluginError as error:
            warn_once(str(error))


def left_out(group: str) -> list[Plugin]:
    """The installed plugins that ``TENONNX_PLUGINS`` excludes."""
    chosen = selection()
    return [p for p in _installed(group) if p not in chosen]


def refused_plugins(group: str, name: str | None = None) -> dict[Plugin, PluginError]:
    """The installed plugins whose name is built in, reserved, or taken by another plugin, with the errors."""
    kind, chosen = GROUPS[group], selection()
    result: dict[Plugin, PluginError] = {}
    first: dict[str, Plugin] = {}
    for plugin in _named(group, name) if kind.unique else ():
        if plugin not in chosen:
            continue
        owner = provider(group, plugin.name) or ("tenonnx itself" if plugin.name in kind.reserved else None)
        if owner is None or plugin.holds(plugin.name):
            holder = first.setdefault(plugin.name, plugin)
            owner = None if holder is plugin else holder.source
        if owner is not None:
            result[plugin] = PluginError(
                f'the name "{plugin.name}" in {group} is already registered by {owner}: {plugin.source} is ignored',
                do=f"give the entry of {plugin.distribution} another name",
            )
    return result


def cure(packages: Iterable[str]) -> str:
    """Advice for missing distributions: install them, or select them."""
    hidden = {plugin.distribution for group in GROUPS for plugin in left_out(group)}
    wanted = sorted(set(packages))
    missing, silenced = [p for p in wanted if p not in hidden], [p for p in wanted if p in hidden]
    ways = [installing(*missing)] if missing else []
    if silenced:
        ways.append(f"allow {', '.join(silenced)} in TENONNX_PLUGINS")
    return ", and ".join(ways)


@cache
def warn_once(text: str) -> None:
    """Warn once for each text."""
    warnings.warn(PluginWarning(text), stacklevel=3)
