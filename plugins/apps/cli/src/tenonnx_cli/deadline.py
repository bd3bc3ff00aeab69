"""``--timeout``: time limit for work that may never end."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import click

from tenonnx import OutOfTime, TenonnxError
from tenonnx.tools import TIMEOUT
from tenonnx_cli.exit_codes import code_of
from tenonnx_cli.output import complain

#: Additional seconds for native code to finish.
GRACE = 10.0

#: for a command that runs a model for its outputs
running_timeout_option = click.option(
    "--timeout",
    type=click.FloatRange(min=0, min_open=True),
    default=TIMEOUT,
    show_default=True,
    metavar="SECONDS",
    help="Stop the model after this many seconds.",
)


def not_finished(seconds: float) -> OutOfTime:
    """The error of a run that exceeded its time limit."""
    return OutOfTime(
        f"not finished within {seconds:g} s",
        do="allow more time (--timeout SECONDS), or use a smaller model or smaller inputs",
    )


class Deadline:
    """Kills the process if native code does not observe the deadline, unless ``met`` is called first."""

    def __init__(self, seconds: float, error: TenonnxError) -> None:
        self._error = error
        self._timer = threading.Timer(min(seconds + GRACE, threading.TIMEOUT_MAX), self._end)
        self._timer.daemon = True
        self._timer.start()

    def met(self) -> None:
        """Cancel the deadline before work that must not be interrupted."""
        self._timer.cancel()

    def _end(self) -> None:
        complain(f"{type(self._error).__name__}: {self._error}")
        os._exit(code_of(self._error))


@contextmanager
def within(seconds: float, late: Callable[[float], TenonnxError] | None = None) -> Iterator[Deadline]:
    """Limit the time of the block. Raises ``late(seconds)`` when it is exceeded."""
    from tenonnx.tools import ending_within, not_verified  # imported lazily with numpy, to keep --help fast

    late = late or not_verified
    deadline = Deadline(seconds, late(seconds))
    try:
        with ending_within(seconds, late):
            yield deadline
    finally:
        deadline.met()
