"""``--timeout``: work on a model that may never end."""

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

#: How many more seconds work in another language may take.
GRACE = 10.0

#: Of a command that runs a model for its outputs.
running_timeout_option = click.option(
    "--timeout",
    type=click.FloatRange(min=0, min_open=True),
    default=TIMEOUT,
    show_default=True,
    metavar="SECONDS",
    help="Stop the model after this many seconds.",
)


def not_finished(seconds: float) -> OutOfTime:
    """The error of a run that took longer."""
    return OutOfTime(
        f"not finished within {seconds:g} s",
        do="allow more time (--timeout SECONDS), or use a smaller model or smaller inputs",
    )


class Deadline:
    """Ends the process where work in another language does not hear of a deadline, unless ``met`` comes first."""

    def __init__(self, seconds: float, error: TenonnxError) -> None:
        self._error = error
        self._timer = threading.Timer(min(seconds + GRACE, threading.TIMEOUT_MAX), self._end)
        self._timer.daemon = True
        self._timer.start()

    def met(self) -> None:
        """Nothing can hang any more: what is under way is not to be interrupted."""
        self._timer.cancel()

    def _end(self) -> None:
        complain(f"{type(self._error).__name__}: {self._error}")
        os._exit(code_of(self._error))


@contextmanager
def within(seconds: float, late: Callable[[float], TenonnxError] | None = None) -> Iterator[Deadline]:
    """Let work end within so many seconds. Raises what ``late`` gives where it does not."""
    from tenonnx.tools import ending_within, not_verified  # which need numpy, and --help does not

    late = late or not_verified
    deadline = Deadline(seconds, late(seconds))
    try:
        with ending_within(seconds, late):
            yield deadline
    finally:
        deadline.met()
