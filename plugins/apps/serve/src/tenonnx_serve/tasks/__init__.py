"""Tasks of a job's process: functions from arguments to JSON data."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

#: Callback that reports progress to the server.
Tell = Callable[..., None]

Task = Callable[..., Any]


def _later(module: str, name: str) -> Task:
    """A task whose module is imported on first call."""

    def run(*arguments: Any, **named: Any) -> Any:
        return getattr(import_module(f"tenonnx_serve.tasks.{module}"), name)(*arguments, **named)

    return run


#: Tasks by the names in requests.
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
