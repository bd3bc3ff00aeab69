"""Contents of a registry: ops, rules and tables, and the owner of each op among several packages."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from types import ModuleType
from typing import Any, NamedTuple

from tenonnx.errors import PluginError, listing
from tenonnx.graph.definitions import Operators
from tenonnx.op.op import Op
from tenonnx.op.rule_kinds import RESERVED
from tenonnx.registry.aliases import Aliases
from tenonnx.registry.discovery import Plugin
from tenonnx.registry.hints import provider

Rule = Callable[..., Any]
ReadTable = Callable[[], Mapping[str, Any]]


class Conflict(NamedTuple):
    """A definition of an op that is ignored, since another package owns the op."""

    left_out: Op
    source: str
    holder: str

    @property
    def line(self) -> str:
        """Source location of the ignored definition."""
        code = self.left_out.function.__code__
        return f"{code.co_filename}:{code.co_firstlineno}"


def in_words(conflicts: Iterable[Conflict]) -> list[str]:
    """Messages that list the ignored names of each package."""
    found: dict[tuple[str, str], list[Conflict]] = {}
    for conflict in conflicts:
        found.setdefault((conflict.source, conflict.holder), []).append(conflict)
    lines = []
    for (source, holder), each in found.items():
        names = sorted({f"{c.left_out.domain}::{c.left_out.name}" for c in each})
        left_out = f"{listing(names, 5)} of {source} left out, as {holder} has the first claim"
        lines.append(f"{left_out}; defined in {each[0].line}")
    return lines


@dataclass
class RegistryContents:
    """Everything that was added. Changes are made to a copy, which replaces the contents if all of them succeed."""

    ops: dict[tuple[str, str], tuple[Op, ...]] = field(default_factory=dict)
    #: modules that define ops and were not imported yet, by domain and name
    awaited: dict[tuple[str, str], tuple[tuple[Plugin | None, str], ...]] = field(default_factory=dict)
    sources: dict[Op, Plugin | None] = field(default_factory=dict)
    rules: dict[tuple[Op, str], Rule] = field(default_factory=dict)
    dtypes: tuple[tuple[Plugin | None, str, ReadTable], ...] = ()
    operators: tuple[Plugin | None, Callable[[], Operators]] | None = None
    conflicts: tuple[Conflict, ...] = ()
    aliases: Aliases = field(default_factory=dict)
    hints: Aliases = field(default_factory=dict)

    def copy(self) -> RegistryContents:
        return replace(
            self, ops=dict(self.ops), awaited=dict(self.awaited), sources=dict(self.sources), rules=dict(self.rules)
        )

    def without(self, plugin: Plugin) -> RegistryContents:
        """The contents without a plugin's tables and its pending ops."""
        return replace(
            self,
            awaited={key: tuple(m for m in modules if m[0] != plugin) for key, modules in self.awaited.items()},
            dtypes=tuple(entry for entry in self.dtypes if entry[0] != plugin),
            operators=None if self.operators is None or self.operators[0] == plugin else self.operators,
        )

    def reached(self, known: set[str]) -> list[tuple[str, str]]:
        """Ops of pending modules that were imported otherwise, except the modules ``known``, which are updated."""
        named = {module for entries in self.awaited.values() for _, module in entries}
        specs = {module: sys.modules[module].__spec__ for module in named & sys.modules.keys() - known}
        new = [module for module, spec in specs.items() if not getattr(spec, "_initializing", False)]
        known.update(new)
        return [(op.domain, op.name) for module in new for op in ops_of(sys.modules[module])]

    def add(self, op: Op, plugin: Plugin | None) -> list[Conflict]:
        """Add one definition, unless another package owns the op; returns the definitions that are ignored."""
        present = self.ops.get((op.domain, op.name), ())
        if op in present:
            return []
        rivals = [other for other in present if _overlap(op, other)]
        for rival in rivals:
            holder = self.sources[rival]
            if plugin is None or (holder is not None and holder.distribution == plugin.distribution):
                raise PluginError(
                    f"{op.domain}::{op.name} is defined twice for a version",
                    given=f"{rival!r} from {source_of(holder)}, {op!r} from {source_of(plugin)}",
                    do="uninstall one of them, or restrict TENONNX_PLUGINS",
                )
            if claim(op.domain, op.name, holder) < claim(op.domain, op.name, plugin):
                result = [Conflict(op, plugin.source, source_of(holder))]
                break
        else:
            result = [Conflict(rival, source_of(self.sources.pop(rival)), source_of(plugin)) for rival in rivals]
            kept = (op, *(other for other in present if other not in rivals))
            self.ops[op.domain, op.name] = tuple(sorted(kept, key=lambda o: -o.since))
            self.sources[op] = plugin
            if plugin is not None:
                op.belongs_to_package()
        self.conflicts += tuple(result)
        return result

    def add_rule(self, op: Op, consumer: str, rule: Rule, plugin: Plugin | None) -> None:
        """Add a rule to the op of another package. Kinds that tenonnx reads are reserved for the op's own package."""
        if plugin is not None and consumer in RESERVED and not self._is_of(op, plugin):
            raise PluginError(
                f"a package other than that of {op.title} registers a {consumer} rule for it",
                given=f"one from {plugin.source}",
                do="define an op of your own; rules for others are for consumers of your own, such as a backend",
            )
        if self.rules.setdefault((op, consumer), rule) is not rule:
            raise PluginError(f"{op.title} has a {consumer} rule from another package already")

    def merged_dtypes(
        self, domain: str, read: Callable[[Plugin | None, ReadTable], Mapping[str, Any]]
    ) -> Mapping[str, Any]:
        """Element types of a domain's ops from all packages; the owner of an op has priority."""
        table: dict[str, Any] = {}
        holders: dict[str, Plugin | None] = {}
        for plugin, of, load in self.dtypes:
            for name, versions in read(plugin, load).items() if of == domain else ():
                if name not in table or claim(domain, name, plugin) < claim(domain, name, holders[name]):
                    table[name], holders[name] = versions, plugin
        return table

    def _is_of(self, op: Op, plugin: Plugin) -> bool:
        holder = self.sources.get(op)
        if holder is not None:
            return holder.distribution == plugin.distribution
        return op.__module__.partition(".")[0] == plugin.package


def ops_of(module: ModuleType) -> list[Op]:
    """The ops that a module defines, without older definitions."""
    own = [v for v in vars(module).values() if isinstance(v, Op) and v.__module__ == module.__name__]
    older = {old for op in own for old in list(op.meanings)[1:]}
    return [op for op in own if op not in older]


#: Change of the contents made by a plugin, or by a program (None).
RegistryChange = Callable[[RegistryContents, Plugin | None], None]


def claim(domain: str, name: str, plugin: Plugin | None) -> tuple[bool, bool, str]:
    """Sort key of packages that define the same op: the lowest owns it. Ops added by a program come first."""
    if plugin is None:
        return False, False, ""
    return not (plugin.is_ours and plugin.distribution == provider(domain, name)), *plugin.rank


def source_of(plugin: Plugin | None) -> str:
    return "this program" if plugin is None else plugin.source


def _overlap(a: Op, b: Op) -> bool:
    return a.since < (b.before or 10**9) and b.since < (a.before or 10**9)
