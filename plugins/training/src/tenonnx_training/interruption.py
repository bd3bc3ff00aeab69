"""Deferred Ctrl-C: an update and its bookkeeping are finished before a run is interrupted."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


class Interruption:
    """Defers Ctrl-C within ``caught``: the handler still raises ``KeyboardInterrupt``, but not inside ``whole``.

    There the first Ctrl-C is raised at the end of the block, and a second one at once.
    """

    def __init__(self) -> None:
        self._inside = self._due = False

    @contextmanager
    def caught(self) -> Iterator[None]:
        """Install the handler: only in the main thread, and only in place of Python's default handler."""
        main = threading.current_thread() is threading.main_thread()
        if not main or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
            yield
            return
        signal.signal(signal.SIGINT, self._take)
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, signal.default_int_handler)

    @contextmanager
    def whole(self) -> Iterator[None]:
        self._inside = True
        try:
            yield
        finally:
            self._inside = False
        if self._due:
            self._due = False
            raise KeyboardInterrupt

    def _take(self, number: int, frame: Any) -> None:
        if not self._inside or self._due:
            raise KeyboardInterrupt
        self._due = True
