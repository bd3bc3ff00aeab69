"""The registry: ops by domain, name and version, and what packages know of the ops of others."""

from __future__ import annotations

import importlib
import json
import pkgutil
import sys
import threading
import warnings
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from tenonnx.errors import PluginError, PluginWarning
from tenonnx.graph.definitions import Operators, defined_by
from tenonnx.graph.garbage import uncollected
from tenonnx.op.dtypes import newest_types
from tenonnx.op.infer import forget_types
from tenonnx.op.op import Op, Opaque
from tenonnx.op.rules import await_rules
from tenonnx.registry.aliases import checked, made_of
from tenonnx.registry.contents import (
    Conflict,
    Loader,
    RegistryChange,
    RegistryContents,
    Rule,
    in_words,
    ops_of,
    source_of,
)
from tenonnx.registry.discovery import Plugin, being_imported, plugins
from tenonnx.registry.guest import WATCHES, Trespass
from tenonnx.registry.hints import provider

if TYPE_CHECKING:
    import pluggy


def canonical_domain(domain: str) -> str:
    """The default domain has two spellings in files, the empty string and ``ai.onnx``; here it is ``ai.onnx``."""
    return domain or "ai.onnx"


class Registry:
    """Ops by (domain, name), newest meaning first. Nothing is loaded until a domain is asked for.

    What is asked often reads contents that are replaced as a whole; what loads or adds holds a lock. So threads that
    ask for a domain at once all find its ops.
    """

    def __init__(self, available: Iterable[Plugin] | Callable[[], Iterable[Plugin]] = ()) -> None:
        if "_contents" in vars(self):
            raise PluginError("a registry is made once", do="make another: Registry()")
        self._available = available
        self._contents = self._agreed = RegistryContents()
        self._lock = threading.RLock()
        self._registering: list[list[RegistryChange]] = []  # what the hooks that are running have added so far
        self._names: dict[Plugin, str] = {}
        self._called: set[str] = set()
        self._complete: frozenset[str] = frozenset()
        self._untold: list[Conflict] = []
        self._modules, self._reached = 0, set[str]()
        self._forget()
        self.failures: dict[Plugin, PluginError] = {}
        self._aliases: dict[tuple[str, str], Op] = {}
        self._meant: dict[Op, Op] = {}

    def _forget(self) -> None:
        """Forget what was made of the contents."""
        self._operators: Operators | None = None
        self._tables: dict[str, Mapping[str, Any]] = {}
        self._newest: dict[Op, Any] = {}
        #: What transforms made of the contents for one graph, and may use for the next.
        self.made: dict[Hashable, Any] = {}

    @classmethod
    def installed(cls) -> Registry:
        """A registry of its own with the ops of every installed package."""
        return cls(lambda: plugins("tenonnx.ops"))

    @cached_property
    def _plugins(self) -> tuple[Plugin, ...]:
        return tuple(self._available() if callable(self._available) else self._available)

    @cached_property
    def _manager(self) -> pluggy.PluginManager:
        import pluggy

        from tenonnx.registry import hookspecs

        manager = pluggy.PluginManager("tenonnx")
        manager.add_hookspecs(hookspecs)
        return manager

    @property
    def conflicts(self) -> Sequence[Conflict]:
        """The meanings that are left out, since another package's hold."""
        return self._contents.conflicts

    # ----- filling ------------------------------------------------------------------------------------------------

    def add(self, *ops: Op) -> None:
        """Add ops with all their meanings.

        Where two packages claim one name for versions that overlap, the meaning of the one with the first claim holds:
        of the op's owner, else of the first by name. Raises ``PluginError`` where one package claims it twice, and for
        ops added by hand that a package has.
        """
        if not self._registering:
            self._import([(op.domain, op.name) for op in ops])

        def change(contents: RegistryContents, plugin: Plugin | None) -> None:
            for op in ops:
                for meaning in op.meanings:
                    self._untold += contents.add(meaning, plugin)

        self._change(change)

    def add_module(self, *modules: ModuleType) -> None:
        """Add every op that the modules define."""
        for module in modules:
            self.add(*ops_of(module))

    def add_package(self, name: str, **rules: str) -> None:
        """Add every op that the modules of a package define, but for its ``plugin`` and ``cases``.

        Modules that hold nothing but rules and traits may be named with the kinds of these, ``x="pattern"``: such a
        module is imported when one of them is first asked for. Raises ``PluginError`` for one that is not there.
        A package with an index, the file ``ops.json``, has the ops that this names, and imports the modules of each
        when it is first asked for: ``{"com.acme": {"Twice": "doubling doubling_rules"}}``, by domain and op.
        """
        package = importlib.import_module(name)
        found = sorted(module.name for module in pkgutil.iter_modules(package.__path__))
        missing = sorted(set(rules) - set(found))
        if missing:
            what = f"rules must be in modules that {name} has"
            raise PluginError(what, given=", ".join(missing), available=", ".join(found))
        index = Path(package.__path__[0], "ops.json")
        if index.exists():
            self._await(name, json.loads(index.read_text("utf-8")))
        else:
            skipped = {"plugin", "cases", *rules}
            self.add_module(*(importlib.import_module(f"{name}.{m}") for m in found if m not in skipped))
        for module, consumers in rules.items():
            await_rules(f"{name}.{module}", consumers.split())

    def _await(self, package: str, index: Mapping[str, Mapping[str, str]]) -> None:
        """Let the modules of a package be imported with the first op of theirs that is asked for."""

        def change(contents: RegistryContents, plugin: Plugin | None) -> None:
            for domain, modules in index.items():
                for name, named in modules.items():
                    entries = ((plugin, f"{package}.{module}") for module in named.split())
                    contents.awaited[domain, name] = (*contents.awaited.get((domain, name), ()), *entries)

        self._change(change)

    def add_rule(self, op: Op, consumer: str, rule: Rule) -> None:
        """Give another package's op a rule for a consumer of one's own, such as a backend.

        The op's own rule wins. Raises ``PluginError`` where it has one from another package, and where a package adds
        one that tenonnx itself reads; a program may.
        """
        self._change(lambda contents, plugin: contents.add_rule(op, consumer, rule, plugin))
        if consumer == "type":
            forget_types(self)

    def add_dtypes(self, domain: str, load: Loader) -> None:
        """Say where the types that a domain's ops take are found; ``load`` is called when they are needed.

        What two packages say of one op is settled as whose op it is.
        """

        def change(contents: RegistryContents, plugin: Plugin | None) -> None:
            contents.dtypes += ((plugin, domain, load),)

        self._change(change)

    def add_aliases(self, domain: str, names: Mapping[str, str], hints: Mapping[str, str] | None = None) -> None:
        """Say which ops other names of a domain mean, each as ``domain::Name``.

        A node of such a ``name`` that no package defines is read as that op, if it is installed. Those among ``hints``
        are only named where the op is missing: what they mean is not clear enough to compute it. Raises
        ``PluginError`` for a meaning without a domain.
        """
        made, told = checked(domain, names), checked(domain, hints or {})

        def change(contents: RegistryContents, plugin: Plugin | None) -> None:
            contents.aliases = {**made, **contents.aliases}
            contents.hints = {**told, **contents.hints}

        self._change(change)

    def add_operators(self, load: Callable[[], Operators]) -> None:
        """Say where the table is of what Python's operators on values mean; ``load`` is called when it is needed.

        Raises ``PluginError`` where the registry has such a table already, and for a package that serves another domain
        than ``ai.onnx``.
        """

        def change(contents: RegistryContents, plugin: Plugin | None) -> None:
            if plugin is not None and plugin.domain != "ai.onnx":
                what = "what Python's operators mean must be said by a package that serves ai.onnx"
                raise PluginError(what, given=f"{plugin.source}, which serves {plugin.domain}")
            if contents.operators is not None:
                raise PluginError("Python's operators have a meaning already, from another package")
            contents.operators = plugin, load

        self._change(change)

    def _change(self, change: RegistryChange) -> None:
        """Make a change, at once or with all others of the plugin that is registering."""
        with self._lock:
            if self._registering:
                self._registering[-1].append(change)
            else:
                self._commit([change], being_imported())

    def _commit(self, changes: Iterable[RegistryChange], plugin: Plugin | None) -> None:
        """Make all changes or none."""
        contents, untold = self._contents.copy(), len(self._untold)
        try:
            for change in changes:
                change(contents, plugin)
        except BaseException:
            del self._untold[untold:]
            raise
        self._agree_on(contents)

    def _agree_on(self, contents: RegistryContents) -> None:
        """Let these be the contents, from now on."""
        self._hold(contents)
        self._forget()

    def _hold(self, contents: RegistryContents) -> None:
        self._contents, self._agreed = contents, contents.copy()

    def restore(self) -> bool:
        """Put back what was added in the ways of this class, where it was changed in others; whether it was."""
        if self._contents == self._agreed:
            return False
        self._agree_on(self._agreed)
        return True

    # ----- loading ------------------------------------------------------------------------------------------------

    def load(self, domain: str) -> None:
        """Import the plugins that serve ``domain``. One that fails is recorded in ``failures`` and left out whole."""
        if domain in self._complete:
            self._import_reached()
            return
        with self._lock, uncollected():
            for plugin in self._serving(domain):
                if self._names[plugin] not in self._called:
                    self._called.add(self._names[plugin])
                    self._call("register_ops", plugin)
            if self._registering:  # by the hook of a plugin, which may be one of these
                return
            self._complete |= {domain}
        self._import(self._contents.awaited.keys() & self._contents.ops.keys())  # which two packages may have
        self._import_reached()
        self._tell()

    def _tell(self) -> None:
        """Warn of the meanings that are left out for those of other packages."""
        with self._lock:
            untold, self._untold = self._untold, []
        for text in in_words(untold):
            warnings.warn(PluginWarning(text), stacklevel=3)

    def load_all(self) -> None:
        """Import every plugin, with all its ops."""
        for domain in self.domains():
            self.load(domain)
        self._import(list(self._contents.awaited))

    def _import(self, ops: Iterable[tuple[str, str]]) -> None:
        """Import the modules of ops that are awaited, and add these. A plugin that fails in one gives no more."""
        awaited = self._contents.awaited
        wanted = {key: awaited[key] for key in ops if key in awaited}
        if not wanted:
            return
        for plugin, module in dict.fromkeys(entry for entries in wanted.values() for entry in entries):
            try:
                with defined_by(self), uncollected():
                    importlib.import_module(module) if plugin is None else plugin.import_module(module)
            except PluginError as error:
                if plugin is None:
                    raise
                with self._lock:
                    self._leave_out(plugin, error)
        with self._lock:
            contents = self._contents.copy()
            for domain, name in wanted:
                for plugin, module in contents.awaited.pop((domain, name), ()):
                    own = [op for op in ops_of(sys.modules[module]) if (op.domain, op.name) == (domain, name)]
                    for meaning in (meaning for op in own for meaning in op.meanings):
                        self._untold += contents.add(meaning, plugin)
            self._hold(contents)
        self._import_reached()
        self._tell()

    def _import_reached(self) -> None:
        """Import the further modules of ops that nobody asked for, and that another module has imported."""
        if len(sys.modules) != self._modules:
            self._modules = len(sys.modules)
            self._import(self._contents.reached(self._reached))

    def _serving(self, domain: str) -> list[Plugin]:
        """The plugins of a domain, imported, and asked for their tables."""
        for plugin in self._plugins:
            if plugin.domain == domain and plugin not in self._names and plugin not in self.failures:
                self._announce(plugin)
        return [plugin for plugin in self._names if plugin.domain == domain]

    def _announce(self, plugin: Plugin) -> None:
        """Let pluggy know a plugin, once for each module that entries name."""
        try:
            with defined_by(self):
                module = plugin.load()
            known_as = self._manager.get_name(module)
            if known_as is not None:
                self._names[plugin] = known_as
                return
            try:
                self._manager.register(module, name=plugin.title)
                self._manager.check_pending()
            except Exception as error:
                raise plugin.failure("has an invalid hook", error) from error
            hooks = {caller.name for caller in self._manager.get_hookcallers(module) or ()}
            if "register_ops" not in hooks:
                must = "must have a function register_ops marked with @hookimpl"
                where = getattr(module, "__file__", None) or plugin.value
                raise PluginError(f'plugin "{plugin.name}" of {plugin.source} {must}', given=where)
        except PluginError as error:
            self._leave_out(plugin, error)
        else:
            self._names[plugin] = plugin.title
            self._call("register_tables", plugin)

    def _call(self, hook: str, plugin: Plugin) -> None:
        """Call a hook of one plugin alone, which leaves nothing behind where it raises."""
        name = self._names[plugin]
        others = [module for known, module in self._manager.list_name_plugin() if known != name]
        changes: list[RegistryChange] = []
        self._registering.append(changes)
        try:
            with defined_by(self), plugin.guarded("loading"):
                self._manager.subset_hook_caller(hook, others)(registry=self)
            self._commit(changes, plugin)
        except KeyboardInterrupt:
            self._called.discard(name)
            raise
        except BaseException as error:
            self._leave_out(plugin, plugin.failure("could not register its ops", error))
        finally:
            self._registering.pop()

    def _leave_out(self, plugin: Plugin, error: PluginError) -> None:
        if isinstance(error.__cause__, Trespass):  # which others would have felt
            warnings.warn(PluginWarning(str(error)), stacklevel=4)
        name = self._names.get(plugin, plugin.title)
        for entry in [plugin, *(other for other, known in self._names.items() if known == name)]:
            self.failures[entry] = error
            self._agree_on(self._contents.without(entry))
            self._names.pop(entry, None)
        if self._manager.has_plugin(name):
            self._manager.unregister(name=name)

    # ----- asking -------------------------------------------------------------------------------------------------

    def domains(self) -> list[str]:
        """Every domain that some plugin serves or that has ops."""
        contents = self._contents
        return sorted({p.domain for p in self._plugins} | {domain for domain, _ in (*contents.ops, *contents.awaited)})

    def lookup(self, domain: str, name: str, version: int) -> Op | None:
        """The meaning of an op at a version of its domain, or None."""
        found = next((op for op in self.meanings(domain, name) if op.holds_at(version)), None)
        return self._alias(domain, name) if found is None else found

    def _alias(self, domain: str, name: str) -> Op | None:
        """The op that another name for one of another name is read as."""
        meant = self._contents.aliases.get((domain, name))
        if meant is None or self.meanings(domain, name):
            return None
        real = next(iter(self.meanings(*meant.split("::"))), None)
        if real is None:
            return None
        with self._lock:
            alias = self._aliases.get((domain, name))
            if alias is None:
                alias = self._aliases[domain, name] = made_of(real, domain, name)
                self._meant[alias] = real
            return alias

    def meant(self, domain: str, name: str) -> str | None:
        """The op that a name is used for which no op of its domain has, as ``domain::Name``; None if nobody says."""
        self.load(domain)
        return self._contents.aliases.get((domain, name)) or self._contents.hints.get((domain, name))

    def serves(self, distribution: str, domain: str) -> bool:
        """Whether a distribution serves a domain, and could be loaded."""
        self.load(domain)
        return any(p.distribution == distribution and p.domain == domain for p in self._names)

    def resolve(self, domain: str, name: str, version: int) -> Op | Opaque:
        """The meaning of an op, or an opaque stand-in."""
        return self.lookup(domain, name, version) or Opaque(domain, name)

    def meanings(self, domain: str, name: str) -> Sequence[Op]:
        """All meanings of an op, newest first."""
        self.load(domain)
        if (domain, name) in self._contents.awaited:
            self._import([(domain, name)])
        return self._contents.ops.get((domain, name), ())

    def ops(self, domain: str | None = None) -> Iterator[Op]:
        """Every meaning in ``domain`` (loaded first), or in all domains."""
        for each in self.domains() if domain is None else [domain]:
            self.load(each)
        self._import([key for key in self._contents.awaited if domain in (None, key[0])])
        for (owner, _), held in sorted(self._contents.ops.items()):
            if domain is None or owner == domain:
                yield from held

    def rule(self, op: Op, consumer: str) -> Rule | None:
        """The rule that a package gave to an op of another, or None."""
        return self._contents.rules.get((op, consumer))

    def operators(self) -> Operators:
        """What Python's operators on values mean; what no package says raises where it is used."""
        found = self._operators
        if found is None:
            with self._lock:
                self._serving("ai.onnx")
                held = self._contents.operators
                self._operators = found = Operators() if held is None else held[1]()
        return found

    def source(self, op: Op) -> str:
        """The distribution and version that an op comes from."""
        op = self._meant.get(op, op)
        self.meanings(op.domain, op.name)  # what is built by hand has asked for none
        contents = self._contents
        return source_of(contents.sources[op]) if op in contents.sources else "the model"

    def provider(self, domain: str, name: str) -> str | None:
        """The distribution that would provide an op, from the hints that core ships."""
        return provider(domain, name)

    def dtypes(self, domain: str, name: str, version: int) -> Any:
        """The types that an op takes at a version: ``{"inputs": [...], "outputs": [...]}``, None if any."""
        versions = self._table(domain).get(name)
        if not versions:
            return None
        holding = [int(v) for v in versions if int(v) <= version]
        return versions[str(max(holding))] if holding else None

    def element_types(self, op: Op) -> Any:
        """What the newest version of a meaning takes, with the types of all its versions; None where nobody says."""
        known = self._newest
        if op not in known:
            known[op] = newest_types(op, self._table(op.domain).get(op.name, {}))
        return known[op]

    def _table(self, domain: str) -> Mapping[str, Any]:
        """What packages say of the element types of a domain's ops, by op and version."""
        table = self._tables.get(domain)
        if table is None:
            with self._lock:
                self._serving(domain)
                table = self._tables[domain] = self._contents.merged_dtypes(domain, self._read_dtypes)
        return table

    def _read_dtypes(self, plugin: Plugin | None, load: Loader) -> Mapping[str, Any]:
        try:
            return dict(load())
        except Exception as error:
            if plugin is None:
                raise
            self.failures[plugin] = plugin.failure("could not give its table of element types", error)
            return {}


_default = Registry.installed()


def default_registry() -> Registry:
    """The registry of everything that is installed."""
    return _default


def _watched() -> Callable[[], str]:
    """Watches the registry of everything while code of a package runs."""
    before = _default

    def put_right() -> str:
        global _default
        replaced, _default = _default is not before, before
        return "it changed what other packages have registered" if before.restore() or replaced else ""

    return put_right


WATCHES.append(_watched)
