"""Outcomes of parts, in a form that can be pickled."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

from tenonnx import TenonnxError
from tenonnx_score.parts import Done, Part, Task

#: Cache of unpickled tasks in this process, as the task may come with every part.
_TASKS: dict[bytes, Task] = {}


def outcome(task: Task, part: Part, news: Callable[[int], None] = lambda rows: None) -> Any:
    """Compute a part; returns the result, or the kind and parts of an error, as not every error can be pickled."""
    try:
        return task(part, news)
    except TenonnxError as error:
        parts = {name: getattr(error, name) for name in ("given", "available", "do", "also")}
        return type(error), error.what, parts
    except Exception as error:
        return RuntimeError, f"{type(error).__name__}: {' '.join(str(error).split())[:500]}", {}


def opened(found: Any) -> Done:
    """The computed part. Raises the error if there was one."""
    if isinstance(found, Done):
        return found
    kind, what, parts = found
    raise kind(what, **parts)


def outcome_of(task: bytes, part: bytes) -> bytes:
    """``outcome`` of pickled arguments, as a pickle."""
    if task not in _TASKS:
        _TASKS.clear()
        _TASKS[task] = pickle.loads(task)  # noqa: S301  from the run that this process works for
    return pickle.dumps(outcome(_TASKS[task], pickle.loads(part)))  # noqa: S301
