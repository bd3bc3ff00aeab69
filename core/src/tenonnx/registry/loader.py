"""Loading plugins of ops by domain, and recording failures."""

from __future__ import annotations

import importlib
import sys
import warnings
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from functools import cached_property
from typing import Any

from tenonnx.errors import PluginError, PluginWarning
from tenonnx.graph.definitions import defined_by
from tenonnx.graph.gc_paused import gc_paused
from tenonnx.registry.discovery import Plugin
from tenonnx.registry.hookspecs import hooks_of


class Loader:
    """Imports a registry's plugins when their ops are looked up, and calls their hooks."""

    def __init__(
        self,
        registry: Any,
        available: Iterable[Plugin] | Callable[[], Iterable[Plugin]],
        lock: AbstractContextManager[Any],
    ) -> None:
        self._registry, self._available, self._lock = registry, available, lock
        self._names: dict[Plugin, str] = {}
        self._hooks: dict[str, tuple[Any, dict[str, Callable[..., Any]]]] = {}
        self._called: set[str] = set()
        self._complete: frozenset[str] = frozenset()
        self._modules, self._reached = 0, set[str]()
        self._calling = 0
        self._unreported: list[PluginError] = []
        self.failures: dict[Plugin, PluginError] = {}

    @cached_property
    def plugins(self) -> tuple[Plugin, ...]:
        """The plugins that may be loaded."""
        return tuple(self._available() if callable(self._available) else self._available)

    def load(self, domain: str) -> None:
        """Import the plugins that serve ``domain``. One that fails is recorded in ``failures`` and ignored entirely."""
        if domain in self._complete:
            self._import_reached()
            return
        with self._lock, gc_paused():
            for plugin in self.serving(domain):
                if self._names[plugin] not in self._called:
                    self._called.add(self._names[plugin])
                    self._call("register_ops", plugin)
            if self._calling:  # called from a plugin's hook, perhaps of one of these plugins
                return
            self._complete |= {domain}
        contents = self._registry.contents
        self.import_ops(contents.awaited.keys() & contents.ops.keys())  # ops that two packages may define
        self._import_reached()
        self._warn()

    def _warn(self) -> None:
        """Warn about plugins that failed, and about definitions that are ignored in favor of another package's."""
        with self._lock:
            failures, self._unreported = self._unreported, []
        for text in [*map(str, failures), *self._registry.take_conflicts()]:
            warnings.warn(PluginWarning(text), stacklevel=3)

    def import_ops(self, ops: Iterable[tuple[str, str]]) -> None:
        """Import the pending modules of these ops and add the ops. After a failure a plugin adds no more ops."""
        awaited = self._registry.contents.awaited
        wanted = {key: awaited[key] for key in ops if key in awaited}
        if not wanted:
            return
        for plugin, module in dict.fromkeys(entry for entries in wanted.values() for entry in entries):
            try:
                with defined_by(self._registry), gc_paused():
                    importlib.import_module(module) if plugin is None else plugin.import_module(module)
            except PluginError as error:
                if plugin is None:
                    raise
                with self._lock:
                    self._leave_out(plugin, error)
        self._registry.add_awaited(wanted)
        self._import_reached()
        self._warn()

    def _import_reached(self) -> None:
        """Add the ops of pending modules that other modules have imported."""
        if len(sys.modules) != self._modules:
            self._modules = len(sys.modules)
            self.import_ops(self._registry.contents.reached(self._reached))

    def serving(self, domain: str) -> list[Plugin]:
        """The plugins of a domain, imported, with their tables registered."""
        for plugin in self.plugins:
            if plugin.domain == domain and plugin not in self._names and plugin not in self.failures:
                self._find_hooks(plugin)
        return [plugin for plugin in self._names if plugin.domain == domain]

    def _find_hooks(self, plugin: Plugin) -> None:
        """Find the hooks of a plugin, once for each module of its entry points."""
        try:
            with defined_by(self._registry):
                module = plugin.load()
            known_as = next((name for name, (other, _) in self._hooks.items() if other is module), None)
            if known_as is not None:
                self._names[plugin] = known_as
                return
            try:
                hooks = hooks_of(module)
            except TypeError as error:
                raise plugin.failure("has an invalid hook", error) from error
            if "register_ops" not in hooks:
                what = "has no function register_ops marked with @hookimpl"
                where = getattr(module, "__file__", None) or plugin.value
                raise PluginError(f'plugin "{plugin.name}" of {plugin.source} {what}', given=where)
        except PluginError as error:
            self._leave_out(plugin, error)
        else:
            self._names[plugin] = plugin.title
            self._hooks[plugin.title] = module, hooks
            self._call("register_tables", plugin)

    def _call(self, hook: str, plugin: Plugin) -> None:
        """Call a hook of a plugin, if it has it; an exception reverts all of its changes."""
        name = self._names[plugin]
        function = self._hooks[name][1].get(hook)
        if function is None:
            return
        self._calling += 1
        try:
            with defined_by(self._registry), self._registry.registering(plugin):
                function(registry=self._registry)
        except KeyboardInterrupt:
            self._called.discard(name)
            raise
        except (Exception, SystemExit) as error:
            self._leave_out(plugin, plugin.failure("could not register its ops", error))
        finally:
            self._calling -= 1

    def _leave_out(self, plugin: Plugin, error: PluginError) -> None:
        self._unreported.append(error)
        name = self._names.get(plugin, plugin.title)
        for entry in [plugin, *(other for other, known in self._names.items() if known == name)]:
            self.failures[entry] = error
            self._registry.leave_out(entry)
            self._names.pop(entry, None)
        self._hooks.pop(name, None)
