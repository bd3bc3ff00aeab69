"""The hooks that plugins of ops implement: functions of a module, marked with ``@hookimpl``.

``register_tables(registry)`` says where tables are: of element types (``registry.add_dtypes``), of Python's operators
(``add_operators``), and which other names its domain's ops go by (``add_aliases``). It is called ahead of
``register_ops``, and without it where an op is called before any is looked up: it imports nothing slow.

``register_ops(registry)`` adds the package's ops (``registry.add``, ``add_module``, ``add_package``) and its rules on
ops of others. Each is called once, with the ``Registry`` that is being filled.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, TypeVar

HOOKS = ("register_ops", "register_tables")

_MARK = "__tenonnx_hook__"

Function = TypeVar("Function", bound=Callable[..., Any])


def hookimpl(function: Function) -> Function:
    """Mark a function as the hook of its name."""
    setattr(function, _MARK, True)
    return function


def hooks_of(module: Any) -> dict[str, Callable[..., Any]]:
    """The hooks of a module, or an object, by name.

    Raises ``TypeError`` for a hook of another name, or that takes no ``registry``.
    """
    found: dict[str, Callable[..., Any]] = {}
    held = dict(vars(module)) if inspect.ismodule(module) else {name: getattr(module, name) for name in dir(module)}
    for name, function in held.items():
        if not inspect.isroutine(function) or not hasattr(function, _MARK):
            continue
        if name not in HOOKS:
            raise TypeError(f"no hook is called {name}; there are {' and '.join(HOOKS)}")
        try:
            inspect.signature(function).bind(registry=None)
        except TypeError as error:
            raise TypeError(f"{name} cannot be called with registry=: {error}") from error
        found[name] = function
    return found
