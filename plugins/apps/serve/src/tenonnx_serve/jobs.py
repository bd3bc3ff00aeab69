"""Jobs: waiting, running and finished."""

from __future__ import annotations

import asyncio
import secrets
import shutil
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tenonnx_serve.processes import JobFailed, Pool

#: Maximum number of waiting jobs, and of finished ones that are kept with their files.
MOST_WAITING, KEPT = 20, 20

ENDED = ("done", "failed", "cancelled")


class TooManyJobs(Exception):
    """The queue is full."""


@dataclass(slots=True, eq=False)
class Job:
    """``state`` is waiting, running, done, failed or cancelled. ``file`` is the result for download."""

    id: str
    task: str
    title: str
    model: str
    folder: Path
    arguments: Mapping[str, Any]
    state: str = "waiting"
    steps: list[str] = field(default_factory=list)
    result: Any = None
    error: dict[str, Any] | None = None
    file: Path | None = None
    seconds: float = 0.0
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    work: asyncio.Task[None] | None = None

    def to_dict(self) -> dict[str, Any]:
        shown = ("id", "task", "title", "model", "state", "steps", "result", "error", "seconds")
        return {name: getattr(self, name) for name in shown} | {"file": self.file.name if self.file else None}

    def tell(self, news: Mapping[str, Any]) -> None:
        self.steps.append(str(news.get("step", "")))
        self.note()

    def note(self) -> None:
        self.changed.set()
        self.changed = asyncio.Event()


class Jobs:
    """Runs jobs in order of arrival, ``at_once`` at a time, with a limit of ``seconds`` each."""

    def __init__(self, pool: Pool, folder: Path, seconds: float, at_once: int = 1) -> None:
        self._pool, self._folder, self._seconds = pool, folder, seconds
        self._turn = asyncio.Semaphore(at_once)
        self.all: dict[str, Job] = {}

    def add(self, task: str, title: str, model: str, arguments: Mapping[str, Any]) -> Job:
        """Enqueue a job. Raises ``TooManyJobs``."""
        if sum(job.state not in ENDED for job in self.all.values()) >= MOST_WAITING:
            raise TooManyJobs
        id = secrets.token_hex(8)
        job = Job(id, task, title, model, self._folder / id, arguments)
        self.all[id] = job
        job.work = asyncio.create_task(self._do(job))
        self._forget()
        return job

    async def cancel(self, job: Job) -> None:
        """Cancel a job in any state."""
        if job.state not in ENDED and job.work is not None:
            job.work.cancel()
            await asyncio.wait([job.work])
            if job.state not in ENDED:  # it had not started
                job.state = "cancelled"
                job.note()

    async def close(self) -> None:
        """End all jobs."""
        for job in list(self.all.values()):
            await self.cancel(job)

    async def follow(self, job: Job, beat: float) -> AsyncIterator[Job]:
        """Yield the job now, on every change and after every ``beat`` seconds, until it has ended."""
        while True:
            changed = job.changed
            yield job
            if job.state in ENDED:
                return
            with suppress(TimeoutError):
                await asyncio.wait_for(changed.wait(), beat)

    async def _do(self, job: Job) -> None:
        try:
            async with self._turn:
                await self._work(job)
        except asyncio.CancelledError:
            job.state = "cancelled"
        except JobFailed as failure:
            job.state, job.error = "failed", failure.error
        except Exception as error:  # an internal error: reported, and the server continues
            job.state, job.error = "failed", {"kind": type(error).__name__, "what": f"{error} (unexpected)"}
        finally:
            if job.file is None:
                shutil.rmtree(job.folder, ignore_errors=True)
            job.note()

    async def _work(self, job: Job) -> None:
        job.state, start = "running", time.monotonic()
        job.note()
        job.folder.mkdir()
        worker = await self._pool.take()
        try:
            arguments = {**job.arguments, "folder": str(job.folder)}
            job.result = await worker.ask(job.task, arguments, self._seconds, job.tell)
        finally:
            job.seconds = time.monotonic() - start
            await asyncio.shield(self._pool.give_back(worker))
        name = job.result.get("file")
        job.file = job.folder / Path(name).name if name else None
        job.state = "done"

    def _forget(self) -> None:
        """Drop the oldest finished jobs, with their files."""
        ended = [job for job in self.all.values() if job.state in ENDED]
        for job in ended[: max(0, len(ended) - KEPT)]:
            del self.all[job.id]
            shutil.rmtree(job.folder, ignore_errors=True)
