"""Tasks of a job's process: functions from arguments to JSON data."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

#: Callback that reports progress to the server.
Tell = Callable[..., None]

Task = Callable[..., Any]


def _lazy_task(module: str, name: str) -> Task:
    """A task whose module is imported on first call."""

    def run(*arguments: Any, **named: Any) -> Any:
        return getattr(import_module(f"tenonnx_serve.tasks.{module}"), name)(*arguments, **named)

    return run


#: Tasks by the names in requests.
TASKS: dict[str, Task] = {
    "open": _lazy_task("look", "open_model"),
    "draw": _lazy_task("look", "draw"),
    "node": _lazy_task("details", "node"),
    "value": _lazy_task("details", "value"),
    "path": _lazy_task("details", "path"),
    "histogram": _lazy_task("details", "histogram"),
    "array": _lazy_task("details", "array"),
    "costs": _lazy_task("look", "costs"),
    "export": _lazy_task("export", "export"),
    "compare": _lazy_task("compare", "compare"),
    "run": _lazy_task("run", "run"),
    "compute": _lazy_task("run", "compute"),
    "explain": _lazy_task("explain", "explain"),
}
