"""Outcomes of parts, in a form that crosses processes."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

from tenonnx import TenonnxError
from tenonnx_score.parts import Done, Part, Task

#: Tasks that this process was given, each opened once: what brings them may come for every part.
_TASKS: dict[bytes, Task] = {}


def outcome(task: Task, part: Part, news: Callable[[int], None] = lambda rows: None) -> Any:
    """Make a part, and say what came of it. Not every error can be pickled, so its kind and parts are told."""
    try:
        return task(part, news)
    except TenonnxError as error:
        parts = {name: getattr(error, name) for name in ("given", "available", "do", "also")}
        return type(error), error.what, parts
    except Exception as error:
        return RuntimeError, f"{type(error).__name__}: {' '.join(str(error).split())[:500]}", {}


def opened(found: Any) -> Done:
    """The part that was made. Raises the error that it was."""
    if isinstance(found, Done):
        return found
    kind, what, parts = found
    raise kind(what, **parts)


def outcome_of(task: bytes, part: bytes) -> bytes:
    """``outcome`` of what was pickled, as a pickle."""
    if task not in _TASKS:
        _TASKS.clear()
        _TASKS[task] = pickle.loads(task)  # noqa: S301  from the run that this process works for
    return pickle.dumps(outcome(_TASKS[task], pickle.loads(part)))  # noqa: S301
