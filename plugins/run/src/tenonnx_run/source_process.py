"""The runtime of an untrusted file in a worker process, with a budget of time and memory.

Whoever verifies a file calls a runtime through this alone: a file on which the runtime crashes, hangs or takes all
memory ends a child, and is not verified.
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

#: Files are held so many times while a runtime reads them: as bytes, as parsed, and as what is computed of them.
_COPIES = 4

#: A second more is allowed for so many bytes of a file, which slow disks and runtimes take to read it.
_BYTES = 1 << 24

_numbers = itertools.count()


class SourceProcess:
    """The worker that serves the functions of a Python file behind some imports, for one file of a model.

    The function ``opened`` of that file gets the arguments ``opening`` first, and each other the result of it; without
    them functions get their arguments alone. All calls together may take the limit ``seconds`` behind the imports, and
    one more for each 16 MiB of the model's file, whose ``size`` is in bytes. The child may grow by the limit ``memory``
    and four times that size. Once the child has ended each further call raises the same error.
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
        """Let the child import the runtime while this process goes on."""
        self.worker.start()

    def __call__(self, function: str, *arguments: Any) -> Any:
        """Result of a function. Raises ``CallFailed`` for what it raises, ``WorkerEnded`` where the child ended."""
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
    """The bytes of a file, or of all files in a folder."""
    place = Path(path)
    files = place.rglob("*") if place.is_dir() else [place]
    return sum(each.stat().st_size for each in files if each.is_file())
