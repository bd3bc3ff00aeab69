"""Memory limit of a command, including native runtimes."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

#: Seconds between two checks.
_PERIOD = 0.05

#: Bytes of the models of the running command.
_brought = [0]


def brought(amount: int) -> None:
    """Raise the memory limit of the command by a file's contents."""
    _brought[0] += amount


@contextmanager
def watched() -> Iterator[None]:
    """Kill the process if it grows by more than the limit ``memory`` plus four times the size of its models.

    Native code cannot be asked to stop. Files are replaced atomically, so none is damaged.
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
