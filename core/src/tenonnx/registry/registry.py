"""The registry: ops by domain, name and version, and rules that packages add to ops of others."""

from __future__ import annotations

import importlib
import json
import pkgutil
import sys
import threading
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

from tenonnx.errors import PluginError
from tenonnx.graph.definitions import Operators
from tenonnx.op.dtypes import newest_types
from tenonnx.op.infer import forget_types
from tenonnx.op.op import Op, Opaque
from tenonnx.op.rules import await_rules
from tenonnx.registry.aliases import checked, made_of
from tenonnx.registry.contents import (
    Conflict,
    ReadTable,
    RegistryChange,
    RegistryContents,
    Rule,
    in_words,
    ops_of,
    source_of,
)
from tenonnx.registry.discovery import Plugin, being_imported, plugins
from tenonnx.registry.hints import provider
from tenonnx.registry.loader import Loader


def canonical_domain(domain: str) -> str:
    """The default domain has two spellings in files, the empty string and ``ai.onnx``; here it is ``ai.onnx``."""
    return domain or "ai.onnx"


class Registry:
    """Ops by (domain, name), newest meaning first: look up, add, and settle conflicts. A ``Loader`` fills it on demand.

    Lookups read contents that are replaced as a whole; changes hold a lock. So threads that look up a domain at
    the same time all find its ops.
    """

    def __init__(self, available: Iterable[Plugin] | Callable[[], Iterable[Plugin]] = ()) -> None:
        self._contents = RegistryContents()
        self._lock = threading.RLock()
        self._registering: list[list[RegistryChange]] = []  # what the hooks that are running have added so far
        self._untold: list[Conflict] = []
        self._loader = Loader(self, available, self._lock)
        self._forget()
        self._aliases: dict[tuple[str, str], Op] = {}
        self._meant: dict[Op, Op] = {}

    def _forget(self) -> None:
        """Clear caches derived from the contents."""
        self._operators: Operators | None = None
        self._tables: dict[str, Mapping[str, Any]] = {}
        self._newest: dict[Op, Any] = {}
        #: What transforms made of the contents for one graph, and may use for the next.
        self.made: dict[Hashable, Any] = {}

    @classmethod
    def installed(cls) -> Registry:
        """A registry of its own with the ops of every installed package."""
        return cls(lambda: plugins("tenonnx.ops"))

    @property
    def failures(self) -> dict[Plugin, PluginError]:
        """Reasons why plugins were ignored."""
        return self._loader.failures

    @property
    def conflicts(self) -> Sequence[Conflict]:
        """The meanings that are ignored, since another package has the first claim."""
        return self._contents.conflicts

    # ----- filling ------------------------------------------------------------------------------------------------

    def add(self, *ops: Op) -> None:
        """Add ops with all their meanings.

        Where two packages define one name at overlapping versions, the meaning of the one with the first claim wins:
        of the op's owner, else of the first by name. Raises ``PluginError`` where one package claims it twice, and for
        ops added by hand that a package has.
        """
        if not self._registering:
            self._loader.import_ops([(op.domain, op.name) for op in ops])

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
            what = f"rule modules were declared that {name} does not have"
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
        """Import the modules of a package once one of their ops is looked up."""

        def change(contents: RegistryContents, plugin: Plugin | None) -> None:
            for domain, modules in index.items():
                for name, named in modules.items():
                    entries = ((plugin, f"{package}.{module}") for module in named.split())
                    contents.awaited[domain, name] = (*contents.awaited.get((domain, name), ()), *entries)

        self._change(change)

    def add_rule(self, op: Op, consumer: str, rule: Rule) -> None:
        """Add a rule to an op of another package, for a consumer such as a backend.

        The op's own rule wins. Raises ``PluginError`` where it has one from another package, and where a package adds
        one that tenonnx itself reads; a program may.
        """
        self._change(lambda contents, plugin: contents.add_rule(op, consumer, rule, plugin))
        if consumer == "type":
            forget_types(self)

    def add_dtypes(self, domain: str, load: ReadTable) -> None:
        """Register the element types of a domain's ops; ``load`` is called when they are needed.

        Conflicts are resolved like those of ops.
        """

        def change(contents: RegistryContents, plugin: Plugin | None) -> None:
            contents.dtypes += ((plugin, domain, load),)

        self._change(change)

    def add_aliases(self, domain: str, names: Mapping[str, str], hints: Mapping[str, str] | None = None) -> None:
        """Add alternative names of ops in a domain, each for a ``domain::Name``.

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
        """Register the table of Python's operators on values; ``load`` is called when it is needed.

        Raises ``PluginError`` where the registry has such a table already, and for a package that serves another domain
        than ``ai.onnx``.
        """

        def change(contents: RegistryContents, plugin: Plugin | None) -> None:
            if plugin is not None and plugin.domain != "ai.onnx":
                what = "a package that does not define ai.onnx registers Python's operators"
                raise PluginError(what, given=f"{plugin.source}, which serves {plugin.domain}")
            if contents.operators is not None:
                raise PluginError("Python's operators are already defined by another package")
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
        self._contents = contents
        self._forget()

    @contextmanager
    def registering(self, plugin: Plugin) -> Iterator[None]:
        """A scope whose changes are made together, in a plugin's name, when it ends without an error."""
        self._registering.append([])
        try:
            yield
            self._commit(self._registering[-1], plugin)
        finally:
            self._registering.pop()

    @property
    def contents(self) -> RegistryContents:
        """The current contents. Do not modify them: changes replace them as a whole."""
        return self._contents

    def add_awaited(self, ops: Iterable[tuple[str, str]]) -> None:
        """Add lazy ops whose modules were imported."""
        ops_in = cache(lambda module: ops_of(sys.modules[module]))
        with self._lock:
            contents = self._contents.copy()
            for domain, name in ops:
                for plugin, module in contents.awaited.pop((domain, name), ()):
                    own = [op for op in ops_in(module) if (op.domain, op.name) == (domain, name)]
                    for meaning in (meaning for op in own for meaning in op.meanings):
                        self._untold += contents.add(meaning, plugin)
            self._contents = contents

    def leave_out(self, plugin: Plugin) -> None:
        """Remove the tables of a plugin and its lazy ops."""
        self._contents = self._contents.without(plugin)
        self._forget()

    def untold(self) -> list[str]:
        """Messages for conflicts since the last call."""
        with self._lock:
            conflicts, self._untold = self._untold, []
        return in_words(conflicts)

    def load(self, domain: str) -> None:
        """Import the plugins that serve ``domain``. One that fails is recorded in ``failures`` and left out whole."""
        self._loader.load(domain)

    def load_all(self) -> None:
        """Import every plugin, with all its ops."""
        for domain in self.domains():
            self._loader.load(domain)
        self._loader.import_ops(list(self._contents.awaited))

    # ----- asking -------------------------------------------------------------------------------------------------

    def domains(self) -> list[str]:
        """Every domain that some plugin serves or that has ops."""
        contents = self._contents
        return sorted(
            {p.domain for p in self._loader.plugins} | {domain for domain, _ in (*contents.ops, *contents.awaited)}
        )

    def lookup(self, domain: str, name: str, version: int) -> Op | None:
        """The meaning of an op at a version of its domain, or None."""
        found = next((op for op in self.meanings(domain, name) if op.holds_at(version)), None)
        return self._alias(domain, name) if found is None else found

    def _alias(self, domain: str, name: str) -> Op | None:
        """The op that an alternative name stands for."""
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
        """The op that an unknown name may mean, as ``domain::Name``, by aliases and hints; None if there is none."""
        self.load(domain)
        return self._contents.aliases.get((domain, name)) or self._contents.hints.get((domain, name))

    def serves(self, distribution: str, domain: str) -> bool:
        """Whether a distribution serves a domain, and could be loaded."""
        self.load(domain)
        return any(p.distribution == distribution for p in self._loader.serving(domain))

    def resolve(self, domain: str, name: str, version: int) -> Op | Opaque:
        """The meaning of an op, or an opaque stand-in."""
        return self.lookup(domain, name, version) or Opaque(domain, name)

    def meanings(self, domain: str, name: str) -> Sequence[Op]:
        """All meanings of an op, newest first."""
        self.load(domain)
        if (domain, name) in self._contents.awaited:
            self._loader.import_ops([(domain, name)])
        return self._contents.ops.get((domain, name), ())

    def ops(self, domain: str | None = None) -> Iterator[Op]:
        """Every meaning in ``domain`` (loaded first), or in all domains."""
        for each in self.domains() if domain is None else [domain]:
            self.load(each)
        self._loader.import_ops([key for key in self._contents.awaited if domain in (None, key[0])])
        for (owner, _), held in sorted(self._contents.ops.items()):
            if domain is None or owner == domain:
                yield from held

    def rule(self, op: Op, consumer: str) -> Rule | None:
        """The rule that a package added to an op of another package, or None."""
        return self._contents.rules.get((op, consumer))

    def operators(self) -> Operators:
        """Meanings of Python's operators on values; an operator without one raises where it is used."""
        found = self._operators
        if found is None:
            with self._lock:
                self._loader.serving("ai.onnx")
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
        """Element types of the newest version of a meaning, and of all its versions; None where they are not known."""
        known = self._newest
        if op not in known:
            known[op] = newest_types(op, self._table(op.domain).get(op.name, {}))
        return known[op]

    def _table(self, domain: str) -> Mapping[str, Any]:
        """Element types of a domain's ops by packages, by op and version."""
        table = self._tables.get(domain)
        if table is None:
            with self._lock:
                self._loader.serving(domain)
                table = self._tables[domain] = self._contents.merged_dtypes(domain, self._read_dtypes)
        return table

    def _read_dtypes(self, plugin: Plugin | None, load: ReadTable) -> Mapping[str, Any]:
        try:
            return dict(load())
        except Exception as error:
            if plugin is None:
                raise
            self._loader.failures[plugin] = plugin.failure("could not give its table of element types", error)
            return {}


_default = Registry.installed()


def default_registry() -> Registry:
    """The registry of all installed packages."""
    return _default
