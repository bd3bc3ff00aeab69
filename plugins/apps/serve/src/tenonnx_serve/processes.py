"""Processes of jobs: one killable process for each job, and one started in advance."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from tenonnx_serve.frames import HEAD, LARGEST, framed

#: Maximum number of characters kept of a process's output.
_PRINTED = 4000

News = Callable[[Mapping[str, Any]], None]


class JobFailed(Exception):
    """A job failed: ``error`` has the parts of a ``TenonnxError`` as JSON."""

    def __init__(self, what: str, **parts: Any) -> None:
        super().__init__(what)
        self.error: dict[str, Any] = {"kind": "JobFailed", "what": what, **parts}


class Worker:
    """A process that answers requests, one at a time."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self._printed = ""
        self._reader = asyncio.create_task(self._keep_printed())

    @classmethod
    async def start(cls, folder: str) -> Worker:
        """Start a process with the working folder ``folder``, from which it imports nothing."""
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-P",
            "-m",
            "tenonnx_serve.worker",
            stdin=pipe,
            stdout=pipe,
            stderr=pipe,
            cwd=folder,
            start_new_session=True,
            env={**os.environ, "TMPDIR": folder},
        )
        return cls(process)

    @property
    def alive(self) -> bool:
        return self._process.returncode is None

    async def ask(self, task: str, arguments: Mapping[str, Any], seconds: float, news: News | None = None) -> Any:
        """The result of a task. Raises ``JobFailed``; after ``seconds`` the process is killed."""
        assert self._process.stdin is not None
        try:
            async with asyncio.timeout(seconds):
                self._process.stdin.write(framed({"task": task, "arguments": arguments}))
                await self._process.stdin.drain()
                while "news" in (message := await self._message()):
                    if news is not None:
                        news(message["news"])
        except TimeoutError:
            await self.end()
            raise JobFailed(
                f"the job did not end within {seconds:g} seconds", do="start tenonnx serve with a larger --timeout"
            ) from None
        except (asyncio.IncompleteReadError, ConnectionError):
            raise JobFailed(*await self._last_words()) from None
        if "error" in message:
            raise JobFailed(**message["error"])
        return message["result"]

    async def _message(self) -> Any:
        assert self._process.stdout is not None
        (length,) = HEAD.unpack(await self._process.stdout.readexactly(HEAD.size))
        if length > LARGEST:
            raise ConnectionError
        return json.loads(await self._process.stdout.readexactly(length))

    async def _keep_printed(self) -> None:
        assert self._process.stderr is not None
        while chunk := await self._process.stderr.read(1 << 14):
            self._printed = (self._printed + chunk.decode("utf-8", "replace"))[-_PRINTED:]

    async def _last_words(self) -> tuple[str]:
        """Reason why a process exited unexpectedly."""
        await self.end()
        said = [line for line in self._printed.splitlines() if line.startswith("LimitExceeded: ")]
        if said:
            return (said[-1].partition(": ")[2],)
        code = self._process.returncode or 0
        how = signal.Signals(-code).name if code < 0 else f"code {code}"
        last = self._printed.strip().splitlines()[-1:]
        return (f"the process of the job exited unexpectedly, with {how}" + (f": {last[0][:300]}" if last else ""),)

    async def end(self) -> None:
        """Kill the process and its descendants."""
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        await self._process.wait()
        with suppress(asyncio.CancelledError):
            await self._reader
        for stream in (self._process.stdin,):
            if stream is not None:
                stream.close()


class Pool:
    """Starts processes in advance, to hide the time of imports."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._ready: asyncio.Task[Worker] | None = None
        self._out: set[Worker] = set()

    def prepare(self) -> None:
        """Start a process in advance."""
        if self._ready is None:
            self._ready = asyncio.create_task(Worker.start(self._folder))

    async def take(self) -> Worker:
        """A process for exclusive use, until ``give_back`` ends it."""
        self.prepare()
        assert self._ready is not None
        ready, self._ready = self._ready, None
        try:
            worker = await ready
        finally:
            self.prepare()
        if not worker.alive:
            worker = await Worker.start(self._folder)
        self._out.add(worker)
        return worker

    async def give_back(self, worker: Worker) -> None:
        self._out.discard(worker)
        await worker.end()

    async def close(self) -> None:
        """End all processes."""
        if self._ready is not None:
            with suppress(OSError):
                self._out.add(await self._ready)
        for worker in list(self._out):
            await self.give_back(worker)
