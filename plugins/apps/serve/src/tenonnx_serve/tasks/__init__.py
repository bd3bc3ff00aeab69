"""Functions that run in the process of a job, from arguments to JSON."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

#: Tells the server what is being done.
Tell = Callable[..., None]

Task = Callable[..., Any]


def _later(module: str, name: str) -> Task:
    """The function of a module that is imported when it is first called."""

    def run(*arguments: Any, **named: Any) -> Any:
        return getattr(import_module(f"tenonnx_serve.tasks.{module}"), name)(*arguments, **named)

    return run


#: By the names that requests have for them.
TASKS: dict[str, Task] = {
    "open": _later("look", "open_model"),
    "draw": _later("look", "draw"),
    "node": _later("details", "node"),
    "value": _later("details", "value"),
    "path": _later("details", "path"),
    "histogram": _later("details", "histogram"),
    "array": _later("details", "array"),
    "costs": _later("look", "costs"),
    "export": _later("export", "export"),
    "compare": _later("compare", "compare"),
    "run": _later("run", "run"),
    "compute": _later("run", "compute"),
    "explain": _later("explain", "explain"),
}
