"""Writing checkpoints in a background thread."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextvars import copy_context


class CheckpointWriter:
    """Writes one checkpoint at a time in a thread of its own."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="checkpoint")
        self._pending: Future[object] | None = None

    def start(self, write: Callable[[], object]) -> None:
        """Call ``write`` in the thread."""
        self._pending = self._thread.submit(copy_context().run, write)

    @property
    def is_writing(self) -> bool:
        """Whether ``wait`` was not called since ``start``."""
        return self._pending is not None

    def wait(self) -> None:
        """Wait for the checkpoint that is being written, if any. Raises the error of writing it."""
        if (pending := self._pending) is not None:
            wait([pending])  # after Ctrl-C, the next call waits again
            self._pending = None
            pending.result()
