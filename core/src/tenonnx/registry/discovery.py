"""Finding installed plugins by their entry points, without importing any."""

from __future__ import annotations

import contextlib
import importlib.metadata
import importlib.util
import inspect
import os
import re
import sys
import traceback
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cache, partial
from importlib.abc import InspectLoader
from pathlib import Path
from typing import Any, NamedTuple

from tenonnx.errors import InvalidCall, PluginError, PluginWarning, TenonnxError, installing
from tenonnx.graph.garbage import uncollected
from tenonnx.registry.guest import guarded
from tenonnx.registry.hints import is_ours, names_of, provider
from tenonnx.registry.import_rules import rules_of

#: The version of what packages are made of (``tenonnx.extend``). A package says ``api = 1``, and is refused where it
#: needs a newer one than this.
API = 1


def _is_backend(value: Any) -> bool:
    return isinstance(getattr(value, "speed", None), int | float) and callable(getattr(value, "compile", None))


def _are_rules(value: Any) -> bool:
    try:
        return bool(rules_of(value))
    except InvalidCall:
        return False


class EntryPointGroup(NamedTuple):
    """One entry-point group: what its values must be, and the names that are taken.

    Names of a group whose ``names`` are ``unique`` say which plugin is meant, so that there can be one of each.
    """

    needs: str = "a module"
    fits: Callable[[Any], bool] = lambda value: True
    unique: bool = False
    reserved: frozenset[str] = frozenset()


#: The entry-point groups: ops are named by the domain they serve, the others by what they provide.
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
    "tenonnx.conformance": EntryPointGroup(),
    "tenonnx.commands": EntryPointGroup(
        "a click command, or a function that adds one to a group",
        callable,
        True,
    ),
    "tenonnx.targets": EntryPointGroup("a package that holds *.toml files", lambda value: hasattr(value, "__path__")),
    "tenonnx.transforms": EntryPointGroup(
        "a function from a graph to a graph", callable, True, names_of("tenonnx.options")
    ),
    "tenonnx.rules": EntryPointGroup("import rules, or a module that holds some", _are_rules),
    "tenonnx.torch_ops": EntryPointGroup(
        "a mapping from operators of PyTorch to functions", lambda value: isinstance(value, Mapping)
    ),
    "tenonnx.tensorflow_ops": EntryPointGroup(),
    "tenonnx.estimators": EntryPointGroup(),
    "tenonnx.hooks": EntryPointGroup(
        "a function of a ModelProto, or an object with post_process",
        lambda value: callable(value) or callable(getattr(value, "post_process", None)),
        True,
    ),
}


class Plugin(NamedTuple):
    """One entry point: two distributions may use one name, so each is told apart by distribution and name."""

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
        """The Python package that the entry point names, or has its module in."""
        return re.split(r"[.:]", self.value)[0]

    @property
    def rank(self) -> tuple[bool, str]:
        """Where two packages give one thing, the lower rank holds: our own distributions, then the first by name."""
        return not self.is_ours, normalized(self.distribution)

    @property
    def is_ours(self) -> bool:
        """Whether the project itself publishes it: another distribution may bear the name, but not with our module."""
        return is_ours(self.distribution) and self.package == self.distribution.replace("-", "_")

    def holds(self, name: str) -> bool:
        """Whether it comes from the distribution that owns a name of its group."""
        return self.is_ours and self.distribution == provider(self.group, name)

    def load(self) -> Any:
        """Import what the entry point names.

        Raises ``PluginError`` naming the distribution, whatever its import raised, and when it is not what its group
        needs.
        """
        self._check_api()  # before an import, which may fail for names that a newer tenonnx has
        value = self._imported(importlib.metadata.EntryPoint(self.name, self.value, self.group).load)
        self._check_api()
        group = GROUPS[self.group]
        if not group.fits(value):
            raise PluginError(
                f'plugin "{self.name}" of {self.source} must be {group.needs}',
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
            with self.running("loading", "could not be imported", KeyboardInterrupt), uncollected():
                return load()
        finally:
            _being_imported.reset(token)

    def guarded(self, doing: str) -> AbstractContextManager[None]:
        """A context for code of the package. Raises ``Trespass`` for what it must not do to the process."""
        return guarded(f"{doing} {self.source}")

    @contextlib.contextmanager
    def running(self, doing: str, what: str, passing: type[BaseException] = TenonnxError) -> Iterator[None]:
        """A context for code of the package. Raises ``PluginError`` for all but Ctrl-C and what is ``passing``."""
        try:
            with self.guarded(doing):
                yield
        except (KeyboardInterrupt, passing):
            raise
        except BaseException as error:  # exits and what test runners skip by are no Exception
            raise self.failure(what, error) from error

    def _check_api(self) -> None:
        wanted = self._api()
        if isinstance(wanted, int) and wanted > API:
            raise PluginError(
                f'plugin "{self.name}" of {self.source} must be written for api {API} of tenonnx',
                given=f"api = {wanted}",
                do=f"upgrade tenonnx, or install an older {self.distribution}",
            )

    def _api(self) -> Any:
        """What the package says, once it is imported; before that, what a line of its source says."""
        package = sys.modules.get(self.package)
        if package is not None:
            return vars(package).get("api", API)  # a flat namespace would look for it
        try:
            spec = importlib.util.find_spec(self.package)
            loader = None if spec is None else spec.loader
            text = loader.get_source(self.package) if isinstance(loader, InspectLoader) else None
        except (ImportError, ValueError, OSError, SyntaxError):
            return API
        line = re.search(r"^api *= *([0-9]+)", text or "", re.MULTILINE)
        return int(line[1]) if line else API

    def failure(self, what: str, error: BaseException) -> PluginError:
        """What is wrong with this plugin, with the line of its own that its author is to look at."""
        found = PluginError(
            f'plugin "{self.name}" of {self.source} {what}',
            given=f"{self.value}: {type(error).__name__}: {error}",
            do=f"correct {self._line(error) or self.value}, or reinstall {self.distribution}, "
            f"or leave it out with TENONNX_PLUGINS=-{self.distribution}",
        )
        found.__cause__ = error
        return found

    def _line(self, error: BaseException) -> str:
        if isinstance(error, SyntaxError) and error.filename:
            return f"{error.filename}:{error.lineno}"
        core = str(Path(__file__).parents[1])
        skipped = (core, str(Path(importlib.__file__).parent), contextlib.__file__, "<")
        home, last = self._home(), ""
        cause: BaseException | None = error
        while cause is not None:
            frames = [f for f in traceback.extract_tb(cause.__traceback__) if not f.filename.startswith(skipped)]
            frames = [f for f in frames if f"{os.sep}pluggy{os.sep}" not in f.filename]
            own = [f"{f.filename}:{f.lineno}" for f in frames if home and f.filename.startswith(home)]
            if own:
                return own[-1]
            last = last or "".join(f"{f.filename}:{f.lineno}" for f in frames[-1:])
            cause = cause.__cause__
        return last

    def _home(self) -> str:
        """The folder or file of the package that the entry point names."""
        try:
            spec = importlib.util.find_spec(self.package)
        except (ImportError, ValueError):
            return ""
        if spec is None or not spec.origin:
            return ""
        return str(Path(spec.origin).parent) if spec.submodule_search_locations else spec.origin


_being_imported: ContextVar[Plugin | None] = ContextVar("tenonnx_plugin", default=None)


def being_imported() -> Plugin | None:
    """The plugin whose import is under way here."""
    return _being_imported.get()


def normalized(name: str) -> str:
    """The name of a distribution as PEP 503 compares it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def _installed(group: str) -> tuple[Plugin, ...]:
    return tuple(p for p in _everything() if p.group == group)


@cache
def _everything() -> tuple[Plugin, ...]:
    """The plugins of all groups by name and rank, found on one way through all that is installed."""
    found: dict[tuple[str, ...], Plugin] = {}
    for distribution in importlib.metadata.distributions():
        if "[tenonnx." not in (distribution.read_text("entry_points.txt") or ""):
            continue  # to parse what hundreds of packages say of themselves takes long
        described = distribution.metadata
        for entry in distribution.entry_points:
            key = described["Name"], entry.group, entry.name, entry.value
            found.setdefault(key, Plugin(entry.name, entry.value, entry.group, described["Name"], described["Version"]))
    return tuple(sorted(found.values(), key=lambda plugin: (plugin.name, plugin.rank)))


@dataclass(frozen=True)
class Selection:
    """What ``TENONNX_PLUGINS`` says: the distributions it names (None for all), and those it leaves out."""

    named: Sequence[str] | None
    without: Sequence[str]

    @classmethod
    def of(cls, text: str | None) -> Selection:
        words = [word.strip() for word in (text or "").split(",") if word.strip()]
        named = [normalized(word) for word in words if not word.startswith("-")]
        without = [normalized(word[1:]) for word in words if word.startswith("-")]
        return cls(None if text is None or (without and not named) else named, without)

    def __contains__(self, plugin: Plugin) -> bool:
        name = normalized(plugin.distribution)
        return name not in self.without and (self.named is None or name in self.named)

    @property
    def unknown(self) -> list[str]:
        """The names that are of no installed plugin."""
        asked = {*(self.named or ()), *self.without}
        known = {normalized(plugin.distribution) for group in GROUPS if asked for plugin in _installed(group)}
        return sorted(asked - known)


def check_takes(what: str, function: Callable[..., Any], /, *given: Any, **options: Any) -> None:
    """Raise ``InvalidCall`` unless a function of a plugin takes what it is about to be given."""
    signature = inspect.signature(function)
    try:
        signature.bind(*given, **options)
    except TypeError as error:
        raise InvalidCall(what, given=str(error), available=f"{function.__name__}{signature}") from error


def selection() -> Selection:
    """What the environment selects: comma-separated distributions, ``-name`` for all but that one, empty for none."""
    return Selection.of(os.environ.get("TENONNX_PLUGINS"))


def plugins(group: str) -> list[Plugin]:
    """The installed plugins of one entry-point group, but those left out and those refused, of which a warning tells.

    They come by name, and those of one name by rank.
    """
    chosen, refused_here = selection(), refused_plugins(group)
    if chosen.unknown:
        warn_once(
            f"TENONNX_PLUGINS names {', '.join(chosen.unknown)}, but no plugin of such a distribution is installed"
        )
    for error in refused_here.values():
        warn_once(str(error))
    return [p for p in _installed(group) if p in chosen and p not in refused_here]


def loaded(group: str, name: str | None = None) -> Iterator[tuple[Plugin, Any]]:
    """The plugins of a group, or those of one name, with what they are; a warning tells of those that do not load."""
    for plugin in plugins(group):
        if name in (None, plugin.name):
            try:
                yield plugin, plugin.load()
            except PluginError as error:
                warn_once(str(error))


def left_out(group: str) -> list[Plugin]:
    """The installed plugins that ``TENONNX_PLUGINS`` leaves out."""
    chosen = selection()
    return [p for p in _installed(group) if p not in chosen]


def refused_plugins(group: str) -> dict[Plugin, PluginError]:
    """The installed plugins whose name is built in, or that of one of ours, or of another that comes first."""
    kind, chosen = GROUPS[group], selection()
    found: dict[Plugin, PluginError] = {}
    first: dict[str, Plugin] = {}
    for plugin in _installed(group) if kind.unique else ():
        if plugin not in chosen:
            continue
        owner = provider(group, plugin.name) or ("tenonnx itself" if plugin.name in kind.reserved else None)
        if owner is None or plugin.holds(plugin.name):
            holder = first.setdefault(plugin.name, plugin)
            owner = None if holder is plugin else holder.source
        if owner is not None:
            found[plugin] = PluginError(
                f'the name "{plugin.name}" in {group} must be new',
                given=f"{plugin.source}, which is left out, as the name is that of {owner}",
                do=f"give the entry of {plugin.distribution} another name",
            )
    return found


def cure(packages: Iterable[str]) -> str:
    """What to do for ops of these distributions: install them, or no longer leave them out."""
    hidden = {plugin.distribution for group in GROUPS for plugin in left_out(group)}
    wanted = sorted(set(packages))
    missing, silenced = [p for p in wanted if p not in hidden], [p for p in wanted if p in hidden]
    ways = [installing(*missing)] if missing else []
    if silenced:
        ways.append(f"let TENONNX_PLUGINS no longer leave out {', '.join(silenced)}")
    return ", and ".join(ways)


@cache
def warn_once(text: str) -> None:
    """Warn, once."""
    warnings.warn(PluginWarning(text), stacklevel=3)
