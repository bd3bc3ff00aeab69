"""``--timeout``: work on a model that may never end."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from tenonnx_cli.options import config_options
from tenonnx_cli.output import complain

#: How many more seconds work in another language may take.
GRACE = 10.0

timeout_option = config_options("timeout")


class Deadline:
    """Ends the process where work in another language does not hear of a deadline, unless ``met`` comes first."""

    def __init__(self, seconds: float) -> None:
        self._what = f"not verified: timed out after {seconds:g} s"
        self._timer = threading.Timer(min(seconds + GRACE, threading.TIMEOUT_MAX), self._end)
        self._timer.daemon = True
        self._timer.start()

    def met(self) -> None:
        """Nothing can hang any more: what is under way is not to be interrupted."""
        self._timer.cancel()

    def _end(self) -> None:
        complain(f"VerificationFailed: {self._what}; nothing is written")
        os._exit(1)


@contextmanager
def within(seconds: float) -> Iterator[Deadline]:
    """Let work end within so many seconds. Raises ``VerificationFailed`` where it does not."""
    from tenonnx.tools import ending_within

    deadline = Deadline(seconds)
    try:
        with ending_within(seconds):
            yield deadline
    finally:
        deadline.met()
