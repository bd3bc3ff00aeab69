"""Open models: a process for each, with the model in memory, to answer requests of the page."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from tenonnx_serve.processes import Pool, Worker
from tenonnx_serve.sources import Model

#: Maximum number of open processes.
MOST = 3


class View:
    """One model in a process, which is started on the first request, and restarted after it ended."""

    def __init__(self, model: Model, pool: Pool, seconds: float) -> None:
        self._model, self._pool, self._seconds = model, pool, seconds
        self._worker: Worker | None = None
        self._lock = asyncio.Lock()
        self._summary: Any = None

    async def ask(self, task: str, arguments: Mapping[str, Any]) -> Any:
        """Result of a task. Raises ``JobFailed``."""
        async with self._lock:
            if self._worker is None or not self._worker.alive:
                await self._open()
            if task == "open":
                return self._summary
            assert self._worker is not None
            return await self._worker.ask(task, arguments, self._seconds)

    async def _open(self) -> None:
        await self._close()
        self._worker = await self._pool.take()
        try:
            self._summary = await self._worker.ask(
                "open", {"source": self._model.source, "reading": self._model.reading}, self._seconds
            )
        except BaseException:
            await self._close()
            raise

    async def _close(self) -> None:
        worker, self._worker = self._worker, None
        if worker is not None:
            await asyncio.shield(self._pool.give_back(worker))

    async def close(self) -> None:
        """End the process, after its current answer."""
        async with self._lock:
            await self._close()


class Views:
    """The most recently used models."""

    def __init__(self, pool: Pool, seconds: float) -> None:
        self._pool, self._seconds = pool, seconds
        self._views: dict[str, View] = {}

    async def ask(self, model: Model, task: str, arguments: Mapping[str, Any]) -> Any:
        """Result of a task for a model. Raises ``JobFailed``."""
        view = self._views.pop(model.id, None) or View(model, self._pool, self._seconds)
        self._views[model.id] = view
        while len(self._views) > MOST:
            await self._views.pop(next(iter(self._views))).close()
        return await view.ask(task, arguments)

    async def forget(self, id: str) -> None:
        """Close the view of a model."""
        if id in self._views:
            await self._views.pop(id).close()
