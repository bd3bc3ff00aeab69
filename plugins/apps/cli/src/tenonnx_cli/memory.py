"""Memory limit of a command, runtimes in C++ included."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

#: Seconds between two looks.
_PERIOD = 0.05

#: Bytes that the models of the command at work brought along.
_brought = [0]


def brought(amount: int) -> None:
    """Let the command take more memory, for what a file holds."""
    _brought[0] += amount


@contextmanager
def watched() -> Iterator[None]:
    """End the process where it grows by more than the limit ``memory``, and four times what was brought along.

    Nothing in the process could be asked to stop while a runtime is at work. Files are replaced whole or not at all.
    """
    from tenonnx import limits

    _brought[0], before, done = 0, limits.resident(), threading.Event()
    allowed = limits.of_process().memory

    def watch() -> None:
        while not done.wait(_PERIOD):
            most = allowed + 4 * _brought[0]
            grown = limits.resident() - before
            if grown > most:
                sys.stderr.flush()
                os.write(2, f"LimitExceeded: {limits.too_much(grown, most)}\n".encode())
                os._exit(2)

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield
    finally:
        done.set()
        watcher.join()
