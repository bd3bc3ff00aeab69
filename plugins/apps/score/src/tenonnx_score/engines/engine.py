"""Selection of an engine by the option ``--on``."""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Iterable
from contextlib import AbstractContextManager
from importlib import import_module
from typing import Protocol

from tenonnx import InvalidCall
from tenonnx_score.parts import Done, Part, Task

#: Modules of engines by name, each with a class ``Engine``.
ENGINES = {name: f"tenonnx_score.engines.on_{name}" for name in ("local", "ray", "spark")}


#: Completed parts, in any order.
Made = Generator[tuple[Part, Done], None, None]


class Engine(Protocol):
    """Computes parts, in any order."""

    #: name for users, and the default number of threads of a worker
    title: str
    threads: int

    def ready(self, threads: int) -> AbstractContextManager[None]:
        """Within the block workers with this many threads start, while the first rows are tried."""
        ...

    def expect(self, seconds: float) -> None:
        """Choose the number of workers for work of ``seconds`` on one processor, unless the user set it."""
        ...

    def run(self, task: Task, parts: Iterable[Part], news: Callable[[int], None]) -> Made:
        """Compute parts with workers, with copies of the task; ``news`` is called with numbers of finished rows."""
        ...


def engine_of(on: str) -> Engine:
    """Parse an engine: ``local:2``, ``ray`` or ``spark:local[2]``. Raises ``InvalidCall`` for anything else."""
    name, _, where = on.partition(":")
    if name not in ENGINES:
        raise InvalidCall("unknown engine", given=on, available="local[:N], ray[:ADDRESS], spark[:MASTER]")
    engine: Engine = import_module(ENGINES[name]).Engine(where)
    return engine


def cores() -> int:
    """Number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
