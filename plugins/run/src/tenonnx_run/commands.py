"""Commands of users, each run to its end or to a limit of time."""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
from collections.abc import Sequence


def run_command(words: Sequence[str], seconds: float, *, reads_stdout: bool = False) -> tuple[int, str] | None:
    """Exit code and output of a command; None where it took longer than ``seconds``, and was ended with its children.

    The output is what it wrote to stderr and, where ``reads_stdout``, to stdout. Raises ``OSError`` for a command that
    cannot be started.
    """
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen(  # noqa: S603  the user's own command
            words,
            stdin=subprocess.DEVNULL,
            stdout=output if reads_stdout else subprocess.DEVNULL,
            stderr=output,
            start_new_session=True,
        )
        try:
            code = process.wait(seconds)
        except subprocess.TimeoutExpired:
            end_with_children(process)
            return None
        except BaseException:
            end_with_children(process)
            raise
        output.seek(0)
        return code, output.read().decode("utf-8", "replace")


def end_with_children(process: subprocess.Popen[bytes]) -> None:
    """End a process that began a session, and on systems with process groups all that it started."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except (AttributeError, ProcessLookupError, PermissionError):
        process.kill()
    process.wait()
