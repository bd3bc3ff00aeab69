"""Worker processes: code that may crash, hang or exhaust memory runs in a child process.

    # functions.py, which may import nothing of tenonnx
    import numpy, some_runtime
    def run(path, feeds): ...

    worker = worker_for(Path(__file__).with_name("functions.py"), "some_runtime")
    worker.start()                                # optional: the child imports while this process goes on
    outputs = worker.call("run", path, feeds)     # raises CallFailed, or WorkerEnded for a crash, a hang, memory

A process has one worker for each such file. It starts on the first call, serves all further ones, and is restarted if
it died. A call is one message each way: None, numbers, strings, bytes, arrays (dtypes of numpy and ml_dtypes, or
strings), and lists and dicts of these.
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
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any

from tenonnx import limits
from tenonnx.errors import TenonnxError
from tenonnx_run.worker_process import packed, receive, send

#: Characters of a crashed process's last output in a message.
_SHOWN = 300

#: Seconds that a child may take to exit by itself.
_PATIENCE = 2.0

#: Time limit of a child's imports in seconds, not counted in calls.
_IMPORTS = 300.0

#: Seconds between two checks of a child's time and memory.
_PERIOD = 0.05


class CallFailed(TenonnxError):
    """A function of a worker raised an exception, whose type is named ``kind``."""

    def __init__(self, what: str, kind: str, given: str) -> None:
        super().__init__(what, given=given)
        self.kind = kind


class WorkerEnded(TenonnxError):
    """A worker's process ended before it answered a call."""


class ProcessCrashed(WorkerEnded):
    """A worker's process died during a call."""


class NoAnswer(WorkerEnded):
    """A worker did not answer in time and was killed."""


class OutOfMemory(WorkerEnded):
    """A worker exceeded its memory limit and was killed."""


class Worker:
    """A child process that calls functions of a Python file; ``name`` identifies it in messages.

    It imports the modules ``imports`` before the file. ``python`` is the interpreter of another environment, whose
    packages the child imports; by default this process's interpreter. Several threads may call it; their calls are
    serialized.
    """

    def __init__(self, file: str | os.PathLike[str], name: str, python: str = "", imports: Sequence[str] = ()) -> None:
        self.file, self.name, self.python, self.imports = os.fspath(file), name, python, imports
        self._process: subprocess.Popen[bytes] | None = None
        self._has_imported = False
        self._errors: IO[bytes] | None = None
        self._started_by = 0
        self._lock = threading.RLock()

    @property
    def process_id(self) -> int | None:
        """PID of the running child, or None."""
        return self._process.pid if self._is_alive() and self._process is not None else None

    def start(self) -> None:
        """Start the child unless it is running, without waiting for its imports."""
        with self._lock:
            if self._is_alive():
                return
            self._forget()
            program = Path(__file__).with_name("worker_process.py")
            interpreter = [self.python, "-I"] if self.python else [sys.executable, "-I", "-S"]
            command = [*interpreter, str(program), self.file, *self.imports]
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
            with contextlib.suppress(OSError):  # it died at once, which the next call reports
                paths = [] if self.python else [path for path in sys.path if path]
                send(self._process.stdin, packed(paths))  # type: ignore[arg-type]

    def wait(self) -> None:
        """Start the child unless it is running, and wait for its imports.

        Raises ``CallFailed`` if they fail, else as ``call``.
        """
        with self._lock:
            limits.check_time()
            self.start()
            if not self._has_imported:
                self._ask(packed(["", [], None]), _IMPORTS, 0)
                self._has_imported = True

    def call(
        self,
        function: str,
        *arguments: Any,
        seconds: float | None = None,
        memory: int = 0,
        source: tuple[str, Sequence[Any]] | None = None,
    ) -> Any:
        """Result of the function, within ``seconds`` after the imports and the deadline of ``limits.within``.

        ``memory`` is the maximum of bytes that the child may hold, where the system reports it; 0 means no limit. A
        ``source`` is a key and the arguments of the function ``opened``: the child caches its result for further calls
        with that key, under the current limits, and passes it to the function as first argument.

        Raises ``CallFailed`` for exceptions of the function, ``ProcessCrashed`` if the child died, ``NoAnswer`` after
        ``seconds``, ``OutOfMemory`` beyond ``memory``, and ``OutOfTime`` at the deadline of ``limits.within``. After
        the last four the next call starts a new child.
        """
        served = None if source is None else [*source, limits.current()._asdict()]
        message = packed([function, arguments, served])
        with self._lock:
            self.wait()
            return self._ask(message, seconds, memory)

    def close(self) -> None:
        """Kill the child; the next call starts another."""
        with self._lock:
            atexit.unregister(self.close)
            process = self._process
            if process is not None and self._started_by == os.getpid():
                process.kill()  # the child has nothing to save, and runtimes may be slow to exit
                process.wait()
            self._forget()

    def _ask(self, message: list[Any], seconds: float | None, memory: int) -> Any:
        """Result of a packed call. Raises as ``call``."""
        end = limits.end()
        left = None if end is None else end - time.monotonic()
        by_caller = left is None or (seconds is not None and seconds < left)
        try:
            answer = self._answer(message, seconds if by_caller else left, memory)
        except TimeoutError:
            if not by_caller:
                raise limits.out_of_time() from None
            raise NoAnswer(f"{self.name} did not answer within {seconds:g} s") from None
        except MemoryError:
            raise OutOfMemory(f"{self.name} took more than {memory:,} bytes of memory") from None
        if "error" in answer:
            raise CallFailed(f"{self.name} failed", answer["error"], answer["message"])
        return answer["result"]

    def _answer(self, message: list[Any], seconds: float | None, memory: int) -> dict[str, Any]:
        """Answer of the child. Raises ``TimeoutError``, ``MemoryError`` and ``ProcessCrashed`` after its end."""
        process, answered = self._process, threading.Event()
        assert process is not None
        assert process.stdin is not None
        assert process.stdout is not None
        reasons: list[Exception] = []
        end = None if seconds is None else time.monotonic() + seconds

        def watch() -> None:
            while not answered.wait(_PERIOD if end is None else min(max(end - time.monotonic(), 0.0), _PERIOD)):
                if end is not None and time.monotonic() >= end:
                    reasons.append(TimeoutError())
                elif memory and limits.resident(process.pid) > memory:
                    reasons.append(MemoryError())
                if reasons:
                    process.kill()
                    return

        if end is not None or memory:
            threading.Thread(target=watch, daemon=True).start()
        try:
            send(process.stdin, message)  # type: ignore[arg-type]
            answer: dict[str, Any] = receive(process.stdout)  # type: ignore[arg-type]
            return answer
        except (OSError, EOFError):
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(_PATIENCE)
            raise (reasons[0] if reasons else self._crash(process)) from None
        except BaseException:  # after an interrupt the next call would read this call's answer
            process.kill()
            process.wait()
            raise
        finally:
            answered.set()

    def _is_alive(self) -> bool:
        """Whether a child of this process is running; a forked process does not own its parent's."""
        process = self._process
        return process is not None and self._started_by == os.getpid() and process.poll() is None

    def _crash(self, process: subprocess.Popen[bytes]) -> ProcessCrashed:
        """The error of a child that died, with its exit status and last output."""
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
        """Close the pipes of a child that has ended."""
        process, errors = self._process, self._errors
        self._process, self._errors, self._has_imported = None, None, False
        for stream in (errors, *(() if process is None else (process.stdin, process.stdout))):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()
        if process is not None and self._started_by != os.getpid():
            process.returncode = 0  # another process's child, for which this one cannot wait


@functools.cache
def worker_for(file: str | os.PathLike[str], name: str, *imports: str) -> Worker:
    """The worker of this process for a file, which imports these modules first."""
    return Worker(file, name, imports=imports)
