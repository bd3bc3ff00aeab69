"""The registry: ops by domain, name and version."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import ModuleType
from typing import Any

from tenonnx.errors import PluginError
from tenonnx.graph.values import operator_loaders
from tenonnx.op.op import Op, Opaque
from tenonnx.op.rules import add_rule
from tenonnx.registry.discovery import Plugin, plugins

#: Element types that an op takes and gives at one version: for each input and output the allowed codes, None for any.
Dtypes = Mapping[str, Any]


def canonical_domain(domain: str) -> str:
    """The default domain has two spellings in files, the empty string and ``ai.onnx``; here it is ``ai.onnx``."""
    return domain or "ai.onnx"


class Registry:
    """Ops by (domain, name), newest meaning first. Nothing is loaded until a domain is asked for."""

    def __init__(self, available: Iterable[Plugin] = ()) -> None:
        self._ops: dict[tuple[str, str], list[Op]] = {}
        self._sources: dict[Op, str] = {}
        self._dtypes: dict[str, list[Callable[[], Dtypes]]] = {}
        self._tables: dict[str, dict[str, Any]] = {}
        self._plugins = list(available)
        self._loaded: set[Plugin] = set()
        self._loading = "this program"
        self.failures: dict[Plugin, PluginError] = {}

    # ----- filling ------------------------------------------------------------------------------------------------

    def add(self, *ops: Op) -> None:
        """Add ops with all their meanings.

        Raises ``PluginError`` when another package claims a name for a version range that overlaps.
        """
        for op in ops:
            for meaning in op.meanings:
                self._add_meaning(meaning)

    def _add_meaning(self, op: Op) -> None:
        held = self._ops.setdefault((op.domain, op.name), [])
        if op in held:
            return
        for other in held:
            if _overlap(op, other):
                raise PluginError(
                    f"{op.domain}::{op.name} must be defined once for a version",
                    given=f"{other!r} from {self._sources[other]}, {op!r} from {self._loading}",
                    do="uninstall one of them, or restrict TENONNX_PLUGINS",
                )
        held.append(op)
        held.sort(key=lambda o: -o.since)
        self._sources[op] = self._loading

    def add_module(self, *modules: ModuleType) -> None:
        """Add every op that the modules define."""
        for module in modules:
            own = [v for v in vars(module).values() if isinstance(v, Op) and v.__module__ == module.__name__]
            heads = [op for op in own if not any(op is old for o in own for old in list(o.meanings)[1:])]
            self.add(*heads)

    def add_package(self, name: str) -> None:
        """Add every op that the modules of a package define, but for its ``plugin`` and ``cases``."""
        package = importlib.import_module(name)
        found = sorted(module.name for module in pkgutil.iter_modules(package.__path__))
        self.add_module(*(importlib.import_module(f"{name}.{m}") for m in found if m not in ("plugin", "cases")))

    def add_rule(self, op: Op, consumer: str, rule: Callable[..., Any]) -> None:
        """Give another package's op a rule."""
        add_rule(op, consumer, rule)

    def add_dtypes(self, domain: str, load: Callable[[], Dtypes]) -> None:
        """Say where the types that a domain's ops take are found; ``load`` is called when they are needed."""
        self._dtypes.setdefault(domain, []).append(load)
        self._tables.pop(domain, None)

    # ----- asking -------------------------------------------------------------------------------------------------

    def load(self, domain: str) -> None:
        """Import the plugins that serve ``domain``. One that fails is recorded in ``failures`` and left out."""
        for plugin in self._plugins:
            if plugin.domain == domain and plugin not in self._loaded:
                self._loaded.add(plugin)
                self._loading = plugin.source
                try:
                    plugin.register(self)
                except PluginError as error:
                    self.failures[plugin] = error
                finally:
                    self._loading = "this program"

    def load_all(self) -> None:
        """Import every plugin."""
        for domain in self.domains():
            self.load(domain)

    def domains(self) -> list[str]:
        """Every domain that some plugin serves or that has ops."""
        return sorted({p.domain for p in self._plugins} | {domain for domain, _ in self._ops})

    def lookup(self, domain: str, name: str, version: int) -> Op | None:
        """The meaning of an op at a version of its domain, or None."""
        self.load(domain)
        for op in self._ops.get((domain, name), ()):
            if op.holds_at(version):
                return op
        return None

    def resolve(self, domain: str, name: str, version: int) -> Op | Opaque:
        """The meaning of an op, or an opaque stand-in."""
        return self.lookup(domain, name, version) or Opaque(domain, name)

    def meanings(self, domain: str, name: str) -> Sequence[Op]:
        """All meanings of an op, newest first."""
        self.load(domain)
        return tuple(self._ops.get((domain, name), ()))

    def ops(self, domain: str | None = None) -> Iterator[Op]:
        """Every meaning in ``domain`` (loaded first), or in all domains."""
        for each in self.domains() if domain is None else [domain]:
            self.load(each)
        for (owner, _), held in sorted(self._ops.items()):
            if domain is None or owner == domain:
                yield from held

    def source(self, op: Op) -> str:
        """The distribution and version that an op comes from."""
        return self._sources.get(op, "the model")

    def provider(self, domain: str, name: str) -> str | None:
        """The distribution that would provide an op, from the hints that core ships."""
        from tenonnx.registry.hints import provider

        return provider(domain, name)

    def dtypes(self, domain: str, name: str, version: int) -> Any:
        """The types that an op takes at a version: ``{"inputs": [...], "outputs": [...]}``, None if any."""
        table = self._tables.get(domain)
        if table is None:
            self.load(domain)
            table = self._tables[domain] = {}
            for load in self._dtypes.get(domain, ()):
                table.update(load())
        versions = table.get(name)
        if not versions:
            return None
        holding = [int(v) for v in versions if int(v) <= version]
        return versions[str(max(holding))] if holding else None


def _overlap(a: Op, b: Op) -> bool:
    return a.since < (b.before or 10**9) and b.since < (a.before or 10**9)


_default: Registry | None = None


def default_registry() -> Registry:
    """The registry of everything that is installed, made on first use."""
    global _default
    if _default is None:
        _default = Registry(plugins("tenonnx.ops"))
    return _default


operator_loaders.append(lambda: default_registry().load("ai.onnx"))
