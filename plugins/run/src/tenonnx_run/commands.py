"""User-supplied commands, with a time limit."""

from __future__ import annotations

import math
import os
import shlex
import signal
import subprocess
import tempfile
from collections.abc import Sequence

from tenonnx.errors import InvalidCall


def run_command(words: Sequence[str], seconds: float, *, reads_stdout: bool = False) -> tuple[int, str] | None:
    """Exit code and output of a command; None if it took longer than ``seconds`` and was killed with its children.

    The output is its stderr and, if ``reads_stdout``, its stdout. Raises ``OSError`` if the command cannot be started.
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


class ModelCommand:
    """A user's command for a model; the path of the model replaces ``{model}`` or is appended.

    ``option`` is the command-line option that set it, for messages. Raises ``InvalidCall`` if it is empty.
    """

    def __init__(self, line: str, option: str) -> None:
        self._words, self._option = shlex.split(line), option
        if not self._words:
            raise InvalidCall(f"the command of {option} is empty")

    def __call__(self, path: str, seconds: float = math.inf) -> tuple[int, str] | None:
        """Exit code and output for a model; None after ``seconds``. Raises ``InvalidCall`` where it cannot start."""
        words = [word.replace("{model}", path) for word in self._words]
        words += [path] if words == self._words else []
        try:
            return run_command(words, seconds, reads_stdout=True)
        except OSError as error:
            raise InvalidCall(
                f"cannot start the command of {self._option}", given=f"{words[0]}: {error.strerror}"
            ) from error


def end_with_children(process: subprocess.Popen[bytes]) -> None:
    """Kill a process that leads a session and, on systems with process groups, its descendants."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except (AttributeError, ProcessLookupError, PermissionError):
        process.kill()
    process.wait()
