"""Local processes with a session each; one that dies is replaced, and its part is recomputed."""

from __future__ import annotations

import itertools
import os
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, BinaryIO, cast

from tenonnx import InvalidCall, TenonnxError
from tenonnx_score.engines.engine import Made, cores
from tenonnx_score.engines.frames import receive, send
from tenonnx_score.engines.outcomes import opened
from tenonnx_score.parts import Done, Part, Task

#: Attempts per part before the death of its workers is blamed on it.
TRIES = 3

#: Seconds of work above which processes pay off; each takes about two seconds to start.
PAYS = 5.0

#: Environment variables that limit the threads of libraries.
_THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


_Process = subprocess.Popen[bytes]


class WorkerDied(TenonnxError):
    """The worker process of a part died repeatedly."""


class Engine:
    """Local processes: the requested number, or one for each core; this process for less work than ``PAYS``.

    A single process, and a single part, run in this process.
    """

    def __init__(self, where: str) -> None:
        if where and not (where.isascii() and where.isdigit() and int(where) > 0):
            raise InvalidCall(
                "the number of processes is not a positive integer", given=f"local:{where}", available="local, local:2"
            )
        self.processes, self._settled = int(where) if where else cores(), bool(where)
        self.threads = max(cores() // self.processes, 1)
        self.title = f"local:{self.processes}"
        self._ready: list[_Process] = []

    @contextmanager
    def ready(self, threads: int) -> Iterator[None]:
        """Within the block the processes of a run start, which takes about a second for imports.

        If their number is not fixed, they start after the first rows were tried.
        """
        if self.processes > 1 and self._settled:
            self._ready = [_process(threads) for _ in range(self.processes)]
        try:
            yield
        finally:
            while self._ready:
                _ended(self._ready.pop())

    def expect(self, seconds: float) -> None:
        """Use no processes for little work, unless their number is given."""
        if not self._settled and seconds < PAYS:
            self.processes = 1
            self.title = "local:1"

    def run(self, task: Task, parts: Iterable[Part], news: Callable[[int], None]) -> Made:
        """Compute parts, in this process or by processes, each supervised by a thread."""
        first = list(itertools.islice(parts := iter(parts), 2))
        waiting = itertools.chain(first, parts)
        if self.processes == 1 or len(first) < 2:
            yield from ((part, task(part, news)) for part in waiting)
            return
        taking = threading.Lock()
        results: queue.SimpleQueue[tuple[Any, Any]] = queue.SimpleQueue()
        workers: list[_Worker] = []
        stopped = threading.Event()

        def mind() -> None:
            worker = _Worker(task, self._ready.pop() if self._ready else None)
            workers.append(worker)
            try:
                while not stopped.is_set():
                    with taking:
                        part = next(waiting, None)
                    if part is None:
                        break
                    results.put((part, worker.make(part, news, stopped)))
            except BaseException as error:
                results.put((None, error))
            finally:
                worker.end()
                results.put((None, None))

        threads = [threading.Thread(target=mind, daemon=True) for _ in range(self.processes)]
        for thread in threads:
            thread.start()
        try:
            alive = len(threads)
            while alive:
                part, found = results.get()
                if part is not None:
                    yield part, found
                elif found is None:
                    alive -= 1
                else:
                    raise found
        finally:
            stopped.set()
            for thread in threads:
                while thread.is_alive():
                    for worker in list(workers):
                        worker.end()
                    thread.join(0.1)


class _Worker:
    """A process, and its replacement."""

    def __init__(self, task: Task, ready: _Process | None) -> None:
        self._task, self._ready = task, ready
        self._process: _Process | None = None

    def _started(self) -> _Process:
        if self._process is None:
            self._process, self._ready = self._ready or _process(self._task.scorer.threads or 1), None
            send(self._in, self._task)
        return self._process

    @property
    def _in(self) -> BinaryIO:
        assert self._process is not None
        return cast("BinaryIO", self._process.stdin)

    def make(self, part: Part, news: Callable[[int], None], stopped: threading.Event) -> Done:
        """Compute a part. Raises the errors of computing it, and ``WorkerDied``."""
        for _ in range(TRIES):
            reported = 0
            try:
                process = self._started()
                send(self._in, part)
                while True:
                    kind, found = receive(cast("BinaryIO", process.stdout))
                    if kind == "outcome":
                        break
                    reported += found
                    news(found)
            except (EOFError, OSError, ValueError):  # it died, or was ended during the request
                how = self.end()
                news(-reported)
                if stopped.is_set():
                    break
            else:
                return opened(found)
        raise WorkerDied(
            f"the process that scores part {part.number} exited unexpectedly",
            given=f"{how}, {TRIES} times; the part begins with row {part.slices[0].row} of {part.slices[0].path}",
            do="see what the system says of it (memory?), try --backend numpy or a smaller --batch-size, and run the "
            "command again: it goes on from there",
        )

    def end(self) -> str:
        """End the process; returns how it ended."""
        for process in (self._ready, self._process):
            how = "stopped" if process is None else _ended(process)
        self._ready = self._process = None
        return how


def _process(threads: int) -> _Process:
    """Start a process in a new group, so that Ctrl-C in a terminal does not reach it: its run ends it."""
    apart: dict[str, Any]
    if sys.platform == "win32":
        apart = {"creationflags": subprocess.CREATE_NEW_PROCESS_GROUP}
    else:
        apart = {"process_group": 0}
    return subprocess.Popen(
        [sys.executable, "-m", "tenonnx_score.engines.worker"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, **dict.fromkeys(_THREADS, str(threads))},
        **apart,
    )


def _ended(process: _Process) -> str:
    with suppress(subprocess.TimeoutExpired):
        process.wait(0.1)  # it may be about to exit
    alive = process.returncode is None
    process.kill()
    code = process.wait()
    for stream in (process.stdin, process.stdout):
        with suppress(OSError):
            cast("BinaryIO", stream).close()
    if alive:
        return "stopped"
    return signal.Signals(-code).name if code < 0 else f"code {code}"
