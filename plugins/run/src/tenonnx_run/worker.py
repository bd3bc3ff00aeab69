"""Worker processes: foreign code that may crash, hang or exhaust memory runs in a child, not in this process.

    # functions.py, which may import nothing of tenonnx
    import numpy, some_runtime
    def run(path, feeds): ...

    worker = worker_for(Path(__file__).with_name("functions.py"), "some_runtime")
    worker.start()                                # optional: the child imports while this process goes on
    outputs = worker.call("run", path, feeds)     # raises CallFailed, ProcessCrashed or NoAnswer

A process has one worker for each such file. It starts with the first call, serves all further ones, and starts again
after it died. A call is one message each way: None, numbers, texts, bytes, arrays of numpy's own types or of texts, and
lists and dicts of these.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import IO, Any

from tenonnx import limits
from tenonnx.errors import TenonnxError
from tenonnx_run.worker_process import packed, receive, send

#: Characters of what a process that crashed wrote last.
_SHOWN = 300

#: Seconds that a child gets to end by itself.
_PATIENCE = 2.0


class CallFailed(TenonnxError):
    """A function of a worker raised an error of the type named ``kind``."""

    def __init__(self, what: str, kind: str, given: str) -> None:
        super().__init__(what, given=given)
        self.kind = kind


class ProcessCrashed(TenonnxError):
    """A worker's process died during a call."""


class NoAnswer(TenonnxError):
    """A worker did not answer in time, and was ended."""


class Worker:
    """A child process that calls functions of a Python file; ``name`` is what it is called in messages.

    ``memory`` limits the address space of the child in bytes, on systems that can. ``python`` is the interpreter of
    another environment, whose packages the child imports; by default it imports those of this process. Several threads
    may call it: their calls wait for each other.
    """

    def __init__(self, file: str | os.PathLike[str], name: str, memory: int = 0, python: str = "") -> None:
        self.file, self.name, self.memory, self.python = os.fspath(file), name, memory, python
        self._process: subprocess.Popen[bytes] | None = None
        self._errors: IO[bytes] | None = None
        self._started_by = 0
        self._lock = threading.RLock()

    @property
    def process_id(self) -> int | None:
        """The child that runs now."""
        return self._process.pid if self._is_alive() and self._process is not None else None

    def start(self) -> None:
        """Start the child unless it runs, without waiting for its imports."""
        with self._lock:
            if self._is_alive():
                return
            self._forget()
            program = Path(__file__).with_name("worker_process.py")
            interpreter = [self.python, "-I"] if self.python else [sys.executable, "-I", "-S"]
            command = [*interpreter, str(program), self.file, str(self.memory)]
            self._errors = tempfile.TemporaryFile()  # noqa: SIM115
            try:
                self._process = subprocess.Popen(  # noqa: S603
                    command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors
                )
            except OSError as error:
                self._forget()
                raise ProcessCrashed(f"cannot start a process for {self.name}", given=str(error)) from error
            self._started_by = os.getpid()
            atexit.register(self.close)
            with contextlib.suppress(OSError):  # it died at once, as the call will find
                paths = [] if self.python else [path for path in sys.path if path]
                send(self._process.stdin, packed(paths))  # type: ignore[arg-type]

    def call(self, function: str, *arguments: Any, seconds: float | None = None) -> Any:
        """Result of the function, within so many seconds and the limit of ``limits.within``.

        Raises ``CallFailed`` for what it raises, ``ProcessCrashed`` where the child died, ``NoAnswer`` after
        ``seconds``, and ``OutOfTime`` at the end of ``limits.within``. After the last three the next call has a new
        child.
        """
        message = packed([function, arguments])
        with self._lock:
            limits.check_time()
            self.start()
            end = limits.end()
            left = None if end is None else end - time.monotonic()
            by_caller = left is None or (seconds is not None and seconds < left)
            try:
                answer = self._answer(message, seconds if by_caller else left)
            except TimeoutError:
                if not by_caller:
                    raise limits.out_of_time() from None
                raise NoAnswer(f"{self.name} did not answer within {seconds:g} s") from None
        if "error" in answer:
            raise CallFailed(f"{self.name} failed", answer["error"], answer["message"])
        return answer["result"]

    def close(self) -> None:
        """End the child; the next call starts another."""
        with self._lock:
            atexit.unregister(self.close)
            process = self._process
            if process is not None and self._started_by == os.getpid():
                process.kill()  # it has nothing to keep, and a runtime takes its time to end
                process.wait()
            self._forget()

    def _answer(self, message: list[Any], seconds: float | None) -> dict[str, Any]:
        """Answer of the child. Raises ``TimeoutError`` and ``ProcessCrashed``; then the child is gone."""
        process, late = self._process, threading.Event()
        assert process is not None
        assert process.stdin is not None
        assert process.stdout is not None

        def end() -> None:
            late.set()
            process.kill()

        timer = threading.Timer(0.0 if seconds is None else max(seconds, 0.0), end)
        timer.daemon = True
        try:
            if seconds is not None:
                timer.start()
            send(process.stdin, message)  # type: ignore[arg-type]
            answer: dict[str, Any] = receive(process.stdout)  # type: ignore[arg-type]
            return answer
        except (OSError, EOFError):
            timer.cancel()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(_PATIENCE)
            if late.is_set():
                raise TimeoutError from None
            raise self._crash(process) from None
        except BaseException:  # an interrupt: the answer would come to the next call
            process.kill()
            process.wait()
            raise
        finally:
            timer.cancel()

    def _is_alive(self) -> bool:
        """Whether there is a child of this very process, not of one that this was forked from."""
        process = self._process
        return process is not None and self._started_by == os.getpid() and process.poll() is None

    def _crash(self, process: subprocess.Popen[bytes]) -> ProcessCrashed:
        """The error of a child that died, with how it did and what it wrote last."""
        errors = self._errors
        assert errors is not None
        process.kill()
        code = process.wait()
        cause = signal.Signals(-code).name if code < 0 else f"exit code {code}"
        errors.seek(0, os.SEEK_END)
        errors.seek(max(errors.tell() - _SHOWN, 0))
        said = " ".join(errors.read().decode("utf-8", "replace").split())
        return ProcessCrashed(f"{self.name} crashed its process ({cause})", given=said)

    def _forget(self) -> None:
        """Close what belongs to a child that is gone."""
        process, errors = self._process, self._errors
        self._process = self._errors = None
        for stream in (errors, *(() if process is None else (process.stdin, process.stdout))):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()
        if process is not None and self._started_by != os.getpid():
            process.returncode = 0  # the child of another process, which is not ours to wait for


@functools.cache
def worker_for(file: str | os.PathLike[str], name: str, memory: int = 0) -> Worker:
    """The one worker of this process for a file."""
    return Worker(file, name, memory)
