"""Registering rules of other packages: checks of their names, and errors that name the package."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from functools import wraps
from typing import Any, TypeVar, cast

from tenonnx.extend import PluginError
from tenonnx.extend.formats import Plugin, being_imported

Function = TypeVar("Function", bound=Callable[..., Any])


def added_rule(function: Function, names: Iterable[str], table: Collection[str]) -> Function:
    """A rule to store in ``table`` under these names.

    During the import of a plugin, names must be new, or ``PluginError`` is raised. Errors of a plugin's rule, except
    those of tenonnx, become a ``PluginError`` that names the plugin. Manual registration may replace a rule.
    """
    plugin = being_imported()
    if plugin is None or plugin.is_ours:
        return function
    if taken := [name for name in names if name in table]:
        raise PluginError(
            "a package registers a second rule for an operator",
            given=taken[0],
            do="register the rule where the model is loaded, so that it holds for that program alone",
        )
    return guarded_rule(plugin, function, ", ".join(names))


def guarded_rule(plugin: Plugin, function: Function, name: str) -> Function:
    """Wrap a function of a plugin, so that errors name the plugin."""

    @wraps(function)
    def run(*arguments: Any, **options: Any) -> Any:
        with plugin.running(f"has a rule for {name} that failed"):
            return function(*arguments, **options)

    return cast("Function", run)
