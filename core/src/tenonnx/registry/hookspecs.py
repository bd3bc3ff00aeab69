"""Hooks that plugins of ops implement: functions of a module marked with ``@hookimpl``.

``register_tables(registry)`` registers tables: element types (``registry.add_dtypes``), Python operators
(``add_operators``), and aliases of its domain's ops (``add_aliases``). It is called before ``register_ops``, and also
if an op is called before any is looked up, so it must import nothing slow.

``register_ops(registry)`` adds the package's ops (``registry.add``, ``add_module``, ``add_package``) and its rules for
ops of other packages. Each hook is called once, with the ``Registry`` to fill.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, TypeVar

HOOKS = ("register_ops", "register_tables")

_MARK = "__tenonnx_hook__"

Function = TypeVar("Function", bound=Callable[..., Any])


def hookimpl(function: Function) -> Function:
    """Mark a function as an implementation of the hook with its name."""
    setattr(function, _MARK, True)
    return function


def hooks_of(module: Any) -> dict[str, Callable[..., Any]]:
    """The hooks of a module, or an object, by name.

    Raises ``TypeError`` for an unknown hook, and for one without the parameter ``registry``.
    """
    result: dict[str, Callable[..., Any]] = {}
    members = dict(vars(module)) if inspect.ismodule(module) else {name: getattr(module, name) for name in dir(module)}
    for name, function in members.items():
        if not inspect.isroutine(function) or not hasattr(function, _MARK):
            continue
        if name not in HOOKS:
            raise TypeError(f"no hook is called {name}; there are {' and '.join(HOOKS)}")
        try:
            inspect.signature(function).bind(registry=None)
        except TypeError as error:
            raise TypeError(f"{name} cannot be called with registry=: {error}") from error
        result[name] = function
    return result
