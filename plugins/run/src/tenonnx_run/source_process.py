"""Runtimes of untrusted files in a worker process, with limits of time and memory.

Verification uses runtimes only through this module: if a file makes the runtime crash, hang or exhaust memory, only the
child ends and the file counts as not verified.
"""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tenonnx import limits
from tenonnx_run.worker import NoAnswer, OutOfMemory, Worker, WorkerEnded, worker_for

#: Copies of a file that a runtime holds: its bytes, the parsed file, and what is computed of it.
_COPIES = 4

#: The time limit grows by a second for this many bytes of a file, for slow disks and runtimes.
_BYTES = 1 << 24

_numbers = itertools.count()


class SourceProcess:
    """A worker that calls functions of a Python file on one model file.

    The file's function ``opened`` is called with the arguments ``opening`` first, and its result is the first argument
    of every other function; without ``opening`` functions get only their own arguments. After the imports, all calls
    together may take the limit ``seconds``, plus one second for each 16 MiB of the model file, whose ``size`` is in
    bytes. The child may grow by the limit ``memory`` plus four times that size. Once the child has ended, every further
    call raises the same error.
    """

    def __init__(
        self,
        functions: Path,
        name: str,
        size: int = 0,
        opening: Sequence[Any] | None = None,
        imports: Sequence[str] = (),
    ) -> None:
        self.worker: Worker = worker_for(functions, name, *imports)
        self._source = None if opening is None else (str(next(_numbers)), opening)
        self._size, self._spent = size, 0.0
        self._most: int | None = None
        self._ended: WorkerEnded | None = None

    def start(self) -> None:
        """Start the child, which imports the runtime in the background."""
        self.worker.start()

    def __call__(self, function: str, *arguments: Any) -> Any:
        """Result of a function. Raises ``CallFailed`` for its exceptions, ``WorkerEnded`` if the child ended."""
        if self._ended is not None:
            raise self._ended
        allowed = limits.current()
        try:
            self.worker.wait()
            if self._most is None:
                self._most = limits.resident(self.worker.process_id or 0) + allowed.memory + _COPIES * self._size
            began = time.monotonic()
            try:
                left = max(allowed.seconds + self._size // _BYTES - self._spent, 0.0)
                return self.worker.call(function, *arguments, seconds=left, memory=self._most, source=self._source)
            finally:
                self._spent += time.monotonic() - began
        except WorkerEnded as error:
            limit = {NoAnswer: "seconds", OutOfMemory: "memory"}.get(type(error))
            if limit:
                error.do = f"where you trust the file, raise the limit: tenonnx.limits.set({limit}=...)"
            self._ended = error
            raise


def size_of(path: str | os.PathLike[str]) -> int:
    """Size of a file, or of all files in a folder, in bytes."""
    place = Path(path)
    files = place.rglob("*") if place.is_dir() else [place]
    return sum(each.stat().st_size for each in files if each.is_file())
