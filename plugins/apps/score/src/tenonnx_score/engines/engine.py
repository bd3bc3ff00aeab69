"""Choosing an engine by the option ``--on``."""

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


#: Parts as they are made, in any order.
Made = Generator[tuple[Part, Done], None, None]


class Engine(Protocol):
    """Makes parts, in any order."""

    #: As it is told to users, and how many threads a worker has where nobody says.
    title: str
    threads: int

    def ready(self, threads: int) -> AbstractContextManager[None]:
        """Within it, workers of so many threads get ready for a run, while the first rows are tried."""
        ...

    def expect(self, seconds: float) -> None:
        """Choose the number of workers for what takes so many seconds of one processor, where nobody says it."""
        ...

    def run(self, task: Task, parts: Iterable[Part], news: Callable[[int], None]) -> Made:
        """Make parts by workers, each with a task of its own; ``news`` is told of rows that are done meanwhile."""
        ...


def engine_of(on: str) -> Engine:
    """``local:2``, ``ray`` or ``spark:local[2]`` as an engine. Raises ``InvalidCall`` for anything else."""
    name, _, where = on.partition(":")
    if name not in ENGINES:
        raise InvalidCall("unknown engine", given=on, available="local[:N], ray[:ADDRESS], spark[:MASTER]")
    made: Engine = import_module(ENGINES[name]).Engine(where)
    return made


def cores() -> int:
    """Number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
