"""Deferred Ctrl-C: an update and its bookkeeping are finished before a run is interrupted."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


class Interruption:
    """Takes Ctrl-C while it is ``caught``, where it would raise ``KeyboardInterrupt`` at once.

    It still does, but for what is ``whole``, whose end a first one waits for.
    """

    def __init__(self) -> None:
        self._inside = self._due = False

    @contextmanager
    def caught(self) -> Iterator[None]:
        """Other threads than the main one get no signals, and handlers of others stay."""
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
