"""The registry: ops by domain, name and version, and rules that packages add to other packages' ops."""

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
    """The domain ``ai.onnx`` for both of its spellings in files: the empty string and ``ai.onnx``."""
    return domain or "ai.onnx"


class Registry:
    """Ops by (domain, name), newest definition first: lookup, addition, conflicts; filled by a ``Loader``.

    Lookups read immutable contents and changes hold a lock, so that concurrent lookups of a domain see all its ops.
    """

    def __init__(self, available: Iterable[Plugin] | Callable[[], Iterable[Plugin]] = ()) -> None:
        self._contents = RegistryContents()
        self._lock = threading.RLock()
        self._registering: list[list[RegistryChange]] = []  # changes of the running hooks
        self._unreported: list[Conflict] = []
        self._loader = Loader(self, available, self._lock)
        self._forget()
        self._aliases: dict[tuple[str, str], Op] = {}
        self._meant: dict[Op, Op] = {}

    def _forget(self) -> None:
        """Clear caches derived from the contents."""
        self._operators: Operators | None = None
        self._tables: dict[str, Mapping[str, Any]] = {}
        self._newest: dict[Op, Any] = {}
        #: cache of transforms, for results that depend on the contents rather than on a graph
        self.made: dict[Hashable, Any] = {}

    @classmethod
    def installed(cls) -> Registry:
        """A new registry with the ops of every installed package."""
        return cls(lambda: plugins("tenonnx.ops"))

    @property
    def failures(self) -> dict[Plugin, PluginError]:
        """Reasons why plugins were ignored."""
        return self._loader.failures

    @property
    def conflicts(self) -> Sequence[Conflict]:
        """The definitions that are ignored, since another package owns the op."""
        return self._contents.conflicts

    # ----- filling ------------------------------------------------------------------------------------------------

    def add(self, *ops: Op) -> None:
        """Add ops with all their definitions.

        If two packages define an op at overlapping versions, the owner of the op wins, else the first package by name.
        Raises ``PluginError`` if one package defines it twice, and if a program adds an op that a package has.
        """
        if not self._registering:
            self._loader.import_ops([(op.domain, op.name) for op in ops])

        def change(contents: RegistryContents, plugin: Plugin | None) -> None:
            for op in ops:
                for meaning in op.meanings:
                    self._unreported += contents.add(meaning, plugin)

        self._change(change)

    def add_module(self, *modules: ModuleType) -> None:
        """Add every op that the modules define (see ``ops_of``)."""
        for module in modules:
            self.add(*ops_of(module))

    def add_package(self, name: str, **rules: str) -> None:
        """Add every op that the modules of a package define, except its modules ``plugin`` and ``cases``.

        Modules with only rules and traits may be named with their kinds, ``x="pattern"``, and are imported on the first
        lookup of such a rule. Raises ``PluginError`` for a module that does not exist. A package with an index, the
        file ``ops.json``, has the ops listed there by domain, and imports an op's modules on first use: ``{"com.acme":
        {"Twice": "doubling doubling_rules"}}``.
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
        """Register the modules of a package for import on the first lookup of their ops."""

        def change(contents: RegistryContents, plugin: Plugin | None) -> None:
            for domain, modules in index.items():
                for name, named in modules.items():
                    entries = ((plugin, f"{package}.{module}") for module in named.split())
                    contents.awaited[domain, name] = (*contents.awaited.get((domain, name), ()), *entries)

        self._change(change)

    def add_rule(self, op: Op, consumer: str, rule: Rule) -> None:
        """Add a rule to an op of another package, for a consumer such as a backend.

        The op's own rule has priority. Raises ``PluginError`` if another package has added one, and if a package adds a
        kind that tenonnx reads itself; programs may do so.
        """
        self._change(lambda contents, plugin: contents.add_rule(op, consumer, rule, plugin))
        if consumer == "type":
            forget_types(self)

    def add_dtypes(self, domain: str, load: ReadTable) -> None:
        """Register the element types of a domain's ops; ``load`` is called on first use.

        Conflicts are resolved like those of ops.
        """

        def change(contents: RegistryContents, plugin: Plugin | None) -> None:
            contents.dtypes += ((plugin, domain, load),)

        self._change(change)

    def add_aliases(self, domain: str, names: Mapping[str, str], hints: Mapping[str, str] | None = None) -> None:
        """Add aliases for ops in a domain, each for a ``domain::Name``.

        A node whose op is unknown is read as the op of its alias, if that is installed. ``hints`` are only suggested in
        messages, since they may differ from the missing op. Raises ``PluginError`` for a target without a domain.
        """
        aliases, hints_by_name = checked(domain, names), checked(domain, hints or {})

        def change(contents: RegistryContents, plugin: Plugin | None) -> None:
            contents.aliases = {**aliases, **contents.aliases}
            contents.hints = {**hints_by_name, **contents.hints}

        self._change(change)

    def add_operators(self, load: Callable[[], Operators]) -> None:
        """Register the implementation of Python operators on values; ``load`` is called on first use.

        Raises ``PluginError`` if the registry has one already, and for a package of a domain other than ``ai.onnx``.
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
        """Apply a change at once, or together with all others of the plugin that is registering."""
        with self._lock:
            if self._registering:
                self._registering[-1].append(change)
            else:
                self._commit([change], being_imported())

    def _commit(self, changes: Iterable[RegistryChange], plugin: Plugin | None) -> None:
        """Apply all changes or none."""
        contents, count = self._contents.copy(), len(self._unreported)
        try:
            for change in changes:
                change(contents, plugin)
        except BaseException:
            del self._unreported[count:]
            raise
        self._contents = contents
        self._forget()

    @contextmanager
    def registering(self, plugin: Plugin) -> Iterator[None]:
        """A scope that applies a plugin's changes together when it ends without an error."""
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
        """Add pending ops whose modules were imported."""
        ops_in = cache(lambda module: ops_of(sys.modules[module]))
        with self._lock:
            contents = self._contents.copy()
            for domain, name in ops:
                for plugin, module in contents.awaited.pop((domain, name), ()):
                    own = [op for op in ops_in(module) if (op.domain, op.name) == (domain, name)]
                    for meaning in (meaning for op in own for meaning in op.meanings):
                        self._unreported += contents.add(meaning, plugin)
            self._contents = contents

    def leave_out(self, plugin: Plugin) -> None:
        """Remove the tables and pending ops of a plugin."""
        self._contents = self._contents.without(plugin)
        self._forget()

    def take_conflicts(self) -> list[str]:
        """Messages of the conflicts since the last call, which are then forgotten."""
        with self._lock:
            conflicts, self._unreported = self._unreported, []
        return in_words(conflicts)

    def load(self, domain: str) -> None:
        """Import the plugins that serve ``domain``. One that fails is recorded in ``failures`` and ignored entirely."""
        self._loader.load(domain)

    def load_all(self) -> None:
        """Import every plugin, with all its ops."""
        for domain in self.domains():
            self._loader.load(domain)
        self._loader.import_ops(list(self._contents.awaited))

    # ----- asking -------------------------------------------------------------------------------------------------

    def domains(self) -> list[str]:
        """All domains that a plugin serves or that have ops."""
        contents = self._contents
        return sorted(
            {p.domain for p in self._loader.plugins} | {domain for domain, _ in (*contents.ops, *contents.awaited)}
        )

    def lookup(self, domain: str, name: str, version: int) -> Op | None:
        """The definition of an op at a version of its domain, or None."""
        result = next((op for op in self.meanings(domain, name) if op.holds_at(version)), None)
        return self._alias(domain, name) if result is None else result

    def _alias(self, domain: str, name: str) -> Op | None:
        """The op of an alias, or None."""
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
        """The op that an unknown name may mean, as ``domain::Name``, by aliases and hints; else None."""
        self.load(domain)
        return self._contents.aliases.get((domain, name)) or self._contents.hints.get((domain, name))

    def serves(self, distribution: str, domain: str) -> bool:
        """Whether a distribution serves a domain and was loaded."""
        self.load(domain)
        return any(p.distribution == distribution for p in self._loader.serving(domain))

    def resolve(self, domain: str, name: str, version: int) -> Op | Opaque:
        """The definition of an op, or an ``Opaque`` op."""
        return self.lookup(domain, name, version) or Opaque(domain, name)

    def meanings(self, domain: str, name: str) -> Sequence[Op]:
        """All definitions of an op, newest first."""
        self.load(domain)
        if (domain, name) in self._contents.awaited:
            self._loader.import_ops([(domain, name)])
        return self._contents.ops.get((domain, name), ())

    def ops(self, domain: str | None = None) -> Iterator[Op]:
        """All definitions in ``domain`` (loaded first), or in all domains."""
        for each in self.domains() if domain is None else [domain]:
            self.load(each)
        self._loader.import_ops([key for key in self._contents.awaited if domain in (None, key[0])])
        for (owner, _), ops in sorted(self._contents.ops.items()):
            if domain is None or owner == domain:
                yield from ops

    def rule(self, op: Op, consumer: str) -> Rule | None:
        """The rule that a package added to an op of another package, or None."""
        return self._contents.rules.get((op, consumer))

    def operators(self) -> Operators:
        """The implementation of Python operators on values; missing operators raise on use."""
        result = self._operators
        if result is None:
            with self._lock:
                self._loader.serving("ai.onnx")
                operators = self._contents.operators
                self._operators = result = Operators() if operators is None else operators[1]()
        return result

    def source(self, op: Op) -> str:
        """The distribution and version that an op comes from."""
        op = self._meant.get(op, op)
        self.meanings(op.domain, op.name)  # ops of a graph built by hand were never looked up
        contents = self._contents
        return source_of(contents.sources[op]) if op in contents.sources else "the model"

    def provider(self, domain: str, name: str) -> str | None:
        """The distribution that provides an op, according to hints in core."""
        return provider(domain, name)

    def dtypes(self, domain: str, name: str, version: int) -> Any:
        """The types that an op accepts at a version: ``{"inputs": [...], "outputs": [...]}``, None if any."""
        versions = self._table(domain).get(name)
        if not versions:
            return None
        holding = [int(v) for v in versions if int(v) <= version]
        return versions[str(max(holding))] if holding else None

    def element_types(self, op: Op) -> Any:
        """Element types at a definition's newest version, merged with those of its other versions; None if unknown."""
        known = self._newest
        if op not in known:
            known[op] = newest_types(op, self._table(op.domain).get(op.name, {}))
        return known[op]

    def _table(self, domain: str) -> Mapping[str, Any]:
        """Element types of a domain's ops from all packages, by op and version."""
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
