"""Thread pool for kernels that numpy runs on one thread. Matrix products use the threads of BLAS."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar, copy_context
from functools import partial
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from concurrent.futures import ThreadPoolExecutor

_allowed: ContextVar[int | None] = ContextVar("tenonnx_threads", default=None)
_pool: ThreadPoolExecutor | None = None


@contextmanager
def allowed(count: int) -> Iterator[None]:
    """Set the number of threads for rules in the block; the default is the number of processors of the process."""
    token = _allowed.set(count)
    try:
        yield
    finally:
        _allowed.reset(token)


def in_parts(work: Callable[[int, int], None], length: int, least: int) -> None:
    """Call ``work(start, end)`` for parts of ``range(length)`` in parallel, each of at least ``least`` entries.

    Parts must not write to the same memory, and should release the GIL, as numpy does in large calls.
    """
    count = length // max(least, 1)
    if count > 1:
        most = _allowed.get()
        count = min(count, _processors() if most is None else most)
    if count < 2:
        work(0, length)
        return
    bounds = [length * k // count for k in range(count + 1)]
    parts = list(itertools.pairwise(bounds))
    waiting = [_shared().submit(partial(copy_context().run, _alone, work, *part)) for part in parts[1:]]
    try:
        work(*parts[0])
    finally:
        for each in waiting:
            each.exception()  # wait for all parts, since they write to buffers of the caller
    for each in waiting:
        each.result()


def _alone(work: Callable[[int, int], None], start: int, end: int) -> None:
    with allowed(1):  # without this, parts that wait for parts could deadlock
        work(start, end)


def _processors() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _shared() -> ThreadPoolExecutor:
    global _pool
    if _pool is None:
        from concurrent.futures import ThreadPoolExecutor

        _pool = ThreadPoolExecutor(_processors(), thread_name_prefix="tenonnx")
    return _pool


def _forget() -> None:
    """Drop the pool in a forked process, which has none of its threads."""
    global _pool
    _pool = None


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)
